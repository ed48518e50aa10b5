package pythonapi

import (
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/tensor"
)

const (
	// sliceRead bounds a read, as plans of whole models do.
	sliceRead = 64 << 20
	// maxReads bounds what a slice that is cut in many dimensions costs to plan.
	maxReads = 1 << 20
)

// planSlice plans a box of one tensor: exactly its bytes, to memory of its own.
// No ranges mean all of it.
func planSlice(m *tensor.Model, e tensor.Entry, ranges [][2]int64, device int) (*tensor.Plan, error) {
	if ranges == nil {
		for _, dim := range e.Shape {
			ranges = append(ranges, [2]int64{0, dim})
		}
	}
	if len(ranges) != len(e.Shape) {
		return nil, fmt.Errorf("tensor %q has %d dimensions, the slice %d", e.Name, len(e.Shape), len(ranges))
	}
	b := box{bits: int64(e.Dtype.Bits())}
	shape := make([]int64, len(ranges))
	whole := true
	for i, r := range ranges {
		dim := e.Shape[i]
		if r[0] < 0 || r[1] < r[0] || r[1] > dim {
			return nil, fmt.Errorf("tensor %q: [%d, %d) is outside dimension %d of %d", e.Name, r[0], r[1], i, dim)
		}
		shape[i] = r[1] - r[0]
		whole = whole && shape[i] == dim
		b.add(dim, r)
	}
	p := m.EmptyPlan()
	t := tensor.Placed{Name: e.Name, Dtype: e.Dtype, Shape: shape, File: e.File}
	if !whole {
		t.Whole = e.Shape
	}
	if !slices.Contains(shape, 0) {
		var err error
		if t.Len, err = b.reads(p, e); err != nil {
			return nil, fmt.Errorf("tensor %q, dtype %s, shape %v: %w", e.Name, e.Dtype, e.Shape, err)
		}
	}
	p.Tensors = []tensor.Placed{t}
	p.Buffers = []tensor.Buffer{{Device: device, Size: max(t.Len, 1)}}
	return p, nil
}

// squeeze leaves dimensions of length 1 out of a shape.
func squeeze(shape []int64, dims []int) ([]int64, error) {
	out := []int64{}
	for i, n := range shape {
		if !slices.Contains(dims, i) {
			out = append(out, n)
		} else if n != 1 {
			return nil, fmt.Errorf("dimension %d has %d, and only 1 can be left out", i, n)
		}
	}
	return out, nil
}

// A box is a range in each of some dimensions. Dimensions that are taken whole
// are joined with the one before them, so only cut ones are left.
type box struct {
	bits int64 // of an element
	dims []int64
	cut  [][2]int64
}

// add adds an inner dimension.
func (b *box) add(dim int64, r [2]int64) {
	last := len(b.dims) - 1
	if last >= 0 && r[0] == 0 && r[1] == dim {
		b.dims[last] *= dim
		b.cut[last][0] *= dim
		b.cut[last][1] *= dim
		return
	}
	b.dims = append(b.dims, dim)
	b.cut = append(b.cut, r)
}

// reads adds the reads of the box to a plan and returns its size in bytes. The
// innermost dimension makes runs of bytes, the one around it repeats them at a
// stride, and those around that are walked through.
func (b *box) reads(p *tensor.Plan, e tensor.Entry) (uint64, error) {
	for len(b.dims) < 2 {
		b.dims, b.cut = slices.Insert(b.dims, 0, 1), slices.Insert(b.cut, 0, [2]int64{0, 1})
	}
	n := len(b.dims)
	inner, rows := b.cut[n-1], b.cut[n-2]
	row := b.dims[n-1] * b.bits
	from, run := inner[0]*b.bits, (inner[1]-inner[0])*b.bits
	if from%8 != 0 || run%8 != 0 || row%8 != 0 && rows != [2]int64{0, 1} {
		return 0, fmt.Errorf("the slice does not lie on byte borders")
	}
	planes := int64(1)
	for _, c := range b.cut[:n-2] {
		planes *= c[1] - c[0]
		if planes > maxReads {
			return 0, fmt.Errorf("the slice is cut in too many dimensions: more than %d pieces", maxReads)
		}
	}
	var dst uint64
	for i := range planes {
		at := b.plane(i)*b.dims[n-2] + rows[0]
		r := tensor.Read{
			File: e.File, Off: e.Off + (at*row+from)/8, Len: run / 8,
			Count: rows[1] - rows[0], Stride: row / 8, Dst: dst,
		}
		dst += uint64(r.Size())
		p.Reads = appendBounded(p.Reads, r)
	}
	return dst, nil
}

// plane is the number of the i-th pair of inner dimensions that the outer cuts
// leave.
func (b *box) plane(i int64) (at int64) {
	scale := int64(1)
	for k := len(b.dims) - 3; k >= 0; k-- {
		n := b.cut[k][1] - b.cut[k][0]
		at += (b.cut[k][0] + i%n) * scale
		i /= n
		scale *= b.dims[k]
	}
	return at
}

// appendBounded cuts a read into pieces of limited size.
func appendBounded(reads []tensor.Read, r tensor.Read) []tensor.Read {
	if r.Count == 1 || r.Len == r.Stride {
		for left := r.Size(); left > 0; {
			n := min(left, sliceRead)
			reads = append(reads, tensor.Read{File: r.File, Off: r.Off, Len: n, Count: 1, Dst: r.Dst})
			r.Off, r.Dst, left = r.Off+n, r.Dst+uint64(n), left-n
		}
		return reads
	}
	each := max(sliceRead/r.Len, 1)
	for left := r.Count; left > 0; {
		n := min(left, each)
		part := r
		part.Count = n
		reads = append(reads, part)
		r.Off, r.Dst, left = r.Off+n*r.Stride, r.Dst+uint64(n*r.Len), left-n
	}
	return reads
}
