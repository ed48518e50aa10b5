package tensor

import "fmt"

// A Cut is a part of a tensor along one dimension. With Parts above 1 the
// dimension holds that many equal blocks side by side (a gate and an up
// projection stored as one tensor), and the cut is taken from each.
type Cut struct {
	Dim   int   `json:"dim"`
	From  int64 `json:"from"` // inside each block
	To    int64 `json:"to"`
	Parts int64 `json:"parts,omitempty"`
}

// A region is where a part of a tensor lies in its file: count runs of run
// bytes, stride apart. On the device they follow each other without gaps.
type region struct {
	shape  []int64
	off    int64 // of the first run, from the start of the tensor
	run    int64
	stride int64
	count  int64
}

// size is the number of bytes in the region.
func (r region) size() int64 { return r.run * r.count }

func whole(info Info) region {
	return region{shape: info.Shape, run: info.Len, stride: info.Len, count: 1}
}

// cutRegion is the part of a tensor that the cuts leave. There may be one cut
// along dimension 0 in front of one along a later dimension.
func cutRegion(info Info, cuts []Cut) (region, error) {
	r := whole(info)
	for i, c := range cuts {
		var err error
		if r, err = cutOnce(info, r, c, i > 0); err != nil {
			return region{}, fmt.Errorf("tensor %q, dtype %s, shape %v: %w", info.Name, info.Dtype, info.Shape, err)
		}
	}
	return r, nil
}

// cutOnce cuts a region that is whole, or, for the second cut, one contiguous
// range of dimension 0.
func cutOnce(info Info, r region, c Cut, second bool) (region, error) {
	if c.Dim < 0 || c.Dim >= len(r.shape) {
		return region{}, fmt.Errorf("there is no dimension %d to cut", c.Dim)
	}
	if second && (c.Dim == 0 || r.count != 1) {
		return region{}, fmt.Errorf("dimension %d is cut behind another cut", c.Dim)
	}
	parts := max(c.Parts, 1)
	n := r.shape[c.Dim]
	if n%parts != 0 {
		return region{}, fmt.Errorf("dimension %d of %d does not hold %d equal blocks", c.Dim, n, parts)
	}
	if c.From < 0 || c.To < c.From || c.To > n/parts {
		return region{}, fmt.Errorf("[%d, %d) of dimension %d is outside its %d", c.From, c.To, c.Dim, n/parts)
	}
	shape := append([]int64(nil), r.shape...)
	shape[c.Dim] = (c.To - c.From) * parts

	// The products cannot overflow: the whole tensor's size in bits was checked.
	outer, inner := parts, int64(info.Dtype.Bits())
	for i, dim := range r.shape {
		switch {
		case i < c.Dim:
			outer *= dim
		case i > c.Dim:
			inner *= dim
		}
	}
	off, run, stride := c.From*inner, (c.To-c.From)*inner, n/parts*inner
	if off%8 != 0 || run%8 != 0 || (outer > 1 && stride%8 != 0) {
		return region{}, fmt.Errorf("[%d, %d) of dimension %d does not lie on byte borders", c.From, c.To, c.Dim)
	}
	out := region{shape, r.off + off/8, run / 8, stride / 8, outer}
	if out.run*out.count == 0 {
		return region{shape, r.off, 0, 0, 1}, nil
	}
	if out.run == out.stride || out.count == 1 {
		size := out.size()
		out.run, out.stride, out.count = size, size, 1
	}
	return out, nil
}
