package tensor

import (
	"errors"
	"fmt"
	"slices"
)

// A Cut is a part of a tensor along one dimension: every Step-th element of a range.
// With Parts above 1 the dimension consists of that many equal blocks (a gate and an
// up projection stored as one tensor), and the cut is taken from each.
type Cut struct {
	Dim   int   `json:"dim"`
	From  int64 `json:"from"` // inside each block
	To    int64 `json:"to"`
	Parts int64 `json:"parts,omitempty"`
	Step  int64 `json:"step,omitempty"` // 0 is 1
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
		all[c.Dim] = Cut{c.Dim, c.From, c.To, max(c.Parts, 1), c.Step}
	}
	shape := make([]int64, len(all))
	var b box
	inner := Cut{}
	for i, c := range all {
		n := info.Shape[i]
		if n%c.Parts != 0 {
			return region{}, fmt.Errorf("dimension %d of %d does not consist of %d equal blocks", i, n, c.Parts)
		}
		n /= c.Parts
		if c.From < 0 || c.To < c.From || c.To > n {
			return region{}, fmt.Errorf("[%d, %d) is outside dimension %d of %d", c.From, c.To, i, n)
		}
		if c.Step < 0 {
			return region{}, fmt.Errorf("step %d of dimension %d must be positive", c.Step, i)
		}
		taken := axis{n, c.From, c.To, max(c.Step, 1)}
		shape[i] = taken.count() * c.Parts
		b.add(axis{c.Parts, 0, c.Parts, 1})
		b.add(taken)
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

// An axis is every step-th element of a range of a dimension.
type axis struct{ dim, from, to, step int64 }

func (a axis) count() int64 { return (a.to - a.from + a.step - 1) / a.step }

func (a axis) whole() bool { return a.from == 0 && a.to == a.dim && a.step == 1 }

// A box is a part of each of some dimensions. Whole ones are joined with the one
// before them where that has no step.
type box []axis

// add adds an inner dimension.
func (b *box) add(a axis) {
	last := len(*b) - 1
	if last >= 0 && a.whole() && (*b)[last].step == 1 {
		outer := &(*b)[last]
		outer.dim *= a.dim
		outer.from *= a.dim
		outer.to *= a.dim
		return
	}
	*b = append(*b, a)
}

var errUnaligned = errors.New("not byte-aligned")

// region returns the runs of a box that is not empty. The innermost dimension makes
// runs of bytes, the one around it repeats them at a stride, and those around that
// make planes. The products cannot overflow: the tensor's size in bits was checked.
func (b box) region(bits int64) (region, error) {
	one := axis{1, 0, 1, 1}
	if len(b) > 0 && b[len(b)-1].step > 1 {
		b = append(b, one) // runs of one element
	}
	for len(b) < 2 {
		b = slices.Insert(b, 0, one)
	}
	inner, rows, outer := b[len(b)-1], b[len(b)-2], b[:len(b)-2]
	row := inner.dim * bits
	from, run, stride := inner.from*bits, inner.count()*bits, rows.step*row
	r := region{run: run / 8, stride: stride / 8, count: rows.count()}
	if run%8 != 0 || r.count > 1 && stride%8 != 0 {
		return r, errUnaligned
	}
	planes := int64(1)
	for _, a := range outer {
		if planes *= a.count(); planes > maxPlanes {
			return r, fmt.Errorf("cut in too many dimensions: more than %d separate ranges", maxPlanes)
		}
	}
	for i := range planes {
		at := (outer.position(i)*rows.dim+rows.from)*row + from
		if at%8 != 0 {
			return r, errUnaligned
		}
		r.planes = append(r.planes, at/8)
	}
	return r, nil
}

// position returns where the i-th element of the box is in its dimensions.
func (b box) position(i int64) (at int64) {
	scale := int64(1)
	for _, a := range slices.Backward(b) {
		n := a.count()
		at += (a.from + i%n*a.step) * scale
		i /= n
		scale *= a.dim
	}
	return at
}
