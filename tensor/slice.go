package tensor

import (
	"errors"
	"fmt"
	"slices"
)

// A Cut is a part of a tensor along one dimension. With Parts above 1 the
// dimension consists of that many equal blocks (a gate and an up projection stored
// as one tensor), and the cut is taken from each.
type Cut struct {
	Dim   int   `json:"dim"`
	From  int64 `json:"from"` // inside each block
	To    int64 `json:"to"`
	Parts int64 `json:"parts,omitempty"`
}

// A region is where a part of a tensor lies in its file: planes of count runs of
// run bytes, stride apart. On the device the runs follow each other without gaps.
type region struct {
	shape  []int64
	planes []int64 // offsets of their first runs, from the start of the tensor
	run    int64
	stride int64
	count  int64
}

// maxPlanes limits what a tensor that is cut in many dimensions costs to plan.
const maxPlanes = 1 << 20

func (r *region) size() int64 { return r.run * r.count * int64(len(r.planes)) }

// contiguous reports whether the region is one range of the file.
func (r *region) contiguous() bool { return r.count == 1 && len(r.planes) == 1 }

// cutRegion returns the part of a tensor that the cuts, one per dimension at most,
// leave.
func cutRegion(info Info, cuts []Cut) (region, error) {
	r, err := cutShape(info, cuts)
	if err != nil {
		return r, fmt.Errorf("tensor %q, dtype %s, shape %v: %w", info.Name, info.Dtype, info.Shape, err)
	}
	return r, nil
}

func cutShape(info Info, cuts []Cut) (region, error) {
	all := make([]Cut, len(info.Shape))
	for i, dim := range info.Shape {
		all[i] = Cut{Dim: i, To: dim, Parts: 1}
	}
	seen := make([]bool, len(all))
	for _, c := range cuts {
		if c.Dim < 0 || c.Dim >= len(all) {
			return region{}, fmt.Errorf("dimension %d does not exist", c.Dim)
		}
		if seen[c.Dim] {
			return region{}, fmt.Errorf("dimension %d: unsupported combination of cuts", c.Dim)
		}
		seen[c.Dim] = true
		all[c.Dim] = Cut{c.Dim, c.From, c.To, max(c.Parts, 1)}
	}
	shape := make([]int64, len(all))
	b, inner := box{}, Cut{}
	for i, c := range all {
		n := info.Shape[i]
		if n%c.Parts != 0 {
			return region{}, fmt.Errorf("dimension %d of %d does not consist of %d equal blocks", i, n, c.Parts)
		}
		n /= c.Parts
		if c.From < 0 || c.To < c.From || c.To > n {
			return region{}, fmt.Errorf("[%d, %d) is outside dimension %d of %d", c.From, c.To, i, n)
		}
		shape[i] = (c.To - c.From) * c.Parts
		b.add(c.Parts, 0, c.Parts)
		b.add(n, c.From, c.To)
		if seen[i] {
			inner = c
		}
	}
	if slices.Contains(shape, 0) {
		return region{shape: shape, planes: []int64{0}, count: 1}, nil
	}
	r, err := b.region(int64(info.Dtype.Bits()))
	if errors.Is(err, errUnaligned) {
		err = fmt.Errorf("[%d, %d) of dimension %d is not byte-aligned", inner.From, inner.To, inner.Dim)
	}
	r.shape = shape
	return r, err
}

// A box is a range in each of some dimensions, of which only the first may be
// whole: other whole dimensions are joined with the one before them.
type box struct {
	dims []int64
	cuts [][2]int64
}

// add adds an inner dimension.
func (b *box) add(dim, from, to int64) {
	last := len(b.dims) - 1
	if last >= 0 && from == 0 && to == dim {
		b.dims[last] *= dim
		b.cuts[last][0] *= dim
		b.cuts[last][1] *= dim
		return
	}
	b.dims = append(b.dims, dim)
	b.cuts = append(b.cuts, [2]int64{from, to})
}

var errUnaligned = errors.New("not byte-aligned")

// region returns the runs of a box that is not empty. The innermost dimension makes
// runs of bytes, the one around it repeats them at a stride, and those around that
// make planes. The products cannot overflow: the tensor's size in bits was checked.
func (b *box) region(bits int64) (region, error) {
	for len(b.dims) < 2 {
		b.dims, b.cuts = slices.Insert(b.dims, 0, 1), slices.Insert(b.cuts, 0, [2]int64{0, 1})
	}
	n := len(b.dims)
	inner, rows := b.cuts[n-1], b.cuts[n-2]
	row := b.dims[n-1] * bits
	from, run := inner[0]*bits, (inner[1]-inner[0])*bits
	r := region{run: run / 8, stride: row / 8, count: rows[1] - rows[0]}
	if run%8 != 0 || r.count > 1 && row%8 != 0 {
		return r, errUnaligned
	}
	planes := int64(1)
	for _, c := range b.cuts[:n-2] {
		if planes *= c[1] - c[0]; planes > maxPlanes {
			return r, fmt.Errorf("cut in too many dimensions: more than %d separate ranges", maxPlanes)
		}
	}
	for i := range planes {
		at := (b.plane(i)*b.dims[n-2]+rows[0])*row + from
		if at%8 != 0 {
			return r, errUnaligned
		}
		r.planes = append(r.planes, at/8)
	}
	return r, nil
}

// plane returns the position of the i-th plane in the outer dimensions.
func (b *box) plane(i int64) (at int64) {
	scale := int64(1)
	for k := len(b.dims) - 3; k >= 0; k-- {
		n := b.cuts[k][1] - b.cuts[k][0]
		at += (b.cuts[k][0] + i%n) * scale
		i /= n
		scale *= b.dims[k]
	}
	return at
}
