package tensor

import (
	"cmp"
	"slices"
)

// A layout gives the items of one device their addresses and makes the reads.
//
// Two tensors can be read at once only if they are as far apart on the device as
// in the file. Addresses must be aligned, so their distance must be a multiple of
// the alignment; such neighbours form a group, which is placed as a whole. What
// lies between its members is read too, and ends up between them.
type layout struct {
	plan   *Plan
	opts   PlanOptions
	device int

	buffer int    // that the next group goes to, or -1
	end    uint64 // of what is used of it
}

// minPhased is the least size of a group whose address agrees with its file offset
// modulo a page. Less is not worth the room.
const minPhased = 16 * pageSize

// A group is a range of a file that goes to the device as it is.
type group struct {
	items    []*item
	from, to int64
	over     int64 // bytes between items
}

func (l *layout) place(items []item) {
	l.buffer = -1
	first := len(l.plan.Reads)
	var g group
	for i := range items {
		it := &items[i]
		if !l.joins(&g, it) {
			l.flush(&g)
			g = group{from: it.off(), to: it.off()}
		}
		g.over += it.off() - g.to
		g.to = it.off() + it.reg.size()
		g.items = append(g.items, it)
	}
	l.flush(&g)
	if l.opts.ByLayer {
		slices.SortStableFunc(l.plan.Reads[first:], func(a, b Read) int {
			return cmp.Compare(l.plan.Tensors[a.First].layer, l.plan.Tensors[b.First].layer)
		})
	}
}

// joins reports whether the item can be read together with the group.
func (l *layout) joins(g *group, it *item) bool {
	if len(g.items) == 0 || l.opts.PerTensor || !it.reg.contiguous() {
		return false
	}
	last := g.items[len(g.items)-1]
	gap := it.off() - g.to
	switch {
	case last.copied, it.copied: // another GPU reads it, and this one nothing of it
		return false
	case last.info.File != it.info.File || !last.reg.contiguous():
		return false
	case l.opts.ByLayer && last.layer != it.layer:
		return false
	case uint64(it.off()-g.from)%tensorAlign != 0:
		return false
	}
	return gap <= maxGap && (g.over+gap)*maxOverRead <= it.off()+it.reg.size()-g.from
}

// flush gives a group its address and makes its reads.
func (l *layout) flush(g *group) {
	if len(g.items) == 0 {
		return
	}
	base := l.reserve(g)
	first := len(l.plan.Tensors)
	for _, it := range g.items {
		it.placed = len(l.plan.Tensors)
		placed := Placed{
			Name: it.info.Name, Dtype: it.info.Dtype, Shape: it.reg.shape, Cuts: it.cuts,
			File: it.info.File, Buffer: l.buffer,
			Off: base + uint64(it.off()-g.from), Len: uint64(it.reg.size()), layer: it.layer,
		}
		if len(it.cuts) > 0 {
			placed.Whole = it.info.Shape
		}
		l.plan.Tensors = append(l.plan.Tensors, placed)
	}
	switch it := g.items[0]; {
	case it.copied:
	case it.reg.contiguous():
		l.readRange(it.info.File, g.from, g.to, base, first)
	default:
		l.readRuns(it, base, first)
	}
}

// reserve finds room for a group and returns its offset in the buffer.
func (l *layout) reserve(g *group) uint64 {
	if l.buffer < 0 || l.opts.PerTensor {
		l.buffer, l.end = len(l.plan.Buffers), 0
		l.plan.Buffers = append(l.plan.Buffers, Buffer{Device: l.device})
	}
	size := uint64(g.to - g.from)
	base := alignUp(l.end, tensorAlign)
	// Where file and device agree modulo a page, direct I/O needs no staging.
	phase := uint64(g.from) % pageSize
	if g.items[0].reg.contiguous() && size >= minPhased && phase%tensorAlign == 0 && !l.opts.PerTensor {
		base = l.end + (phase-l.end)%pageSize
		base = alignUp(base, tensorAlign)
	}
	l.end = base + size
	// An empty tensor has an address too.
	l.plan.Buffers[l.buffer].Size = max(l.end, 1)
	return base
}

func alignUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// readRange reads a contiguous range, in reads that end on page boundaries. It
// brings tensors from first on, up to the last one of the plan.
func (l *layout) readRange(file int, from, end int64, dst uint64, first int) {
	for from < end {
		to := end
		if to-from > l.opts.MaxRead {
			to = (from + l.opts.MaxRead) / pageSize * pageSize
		}
		r := Read{File: file, Off: from, Len: to - from, Count: 1, Buffer: l.buffer, Dst: dst}
		dst, from = dst+uint64(r.Len), to
		if l.touched(&r, first) {
			l.plan.Reads = append(l.plan.Reads, r)
		}
	}
}

// touched sets First and Last to the tensors that the read brings bytes of, and
// reports whether there are any: a small read may lie between two tensors.
func (l *layout) touched(r *Read, first int) bool {
	ts, from, to := l.plan.Tensors, r.Dst, r.Dst+uint64(r.Len)
	last := len(ts) - 1
	for first < last && ts[first].Off+ts[first].Len <= from {
		first++
	}
	for last > first && ts[last].Off >= to {
		last--
	}
	r.First, r.Last = first, last
	return ts[first].Off < to && ts[first].Off+ts[first].Len > from
}

// readRuns reads a strided part of one tensor. The bytes between its runs belong to
// other ranks: reading over them would put them on the device.
func (l *layout) readRuns(it *item, dst uint64, tensor int) {
	reg := &it.reg
	each := l.opts.MaxRead / max(reg.run, 1)
	for _, plane := range reg.planes {
		off := it.info.Off + plane
		for i := int64(0); i < reg.count; {
			n := min(max(each, 1), reg.count-i)
			if n == 1 {
				l.readRange(it.info.File, off, off+reg.run, dst, tensor)
			} else {
				l.plan.Reads = append(l.plan.Reads, Read{
					File: it.info.File, Off: off, Len: reg.run, Count: n, Stride: reg.stride,
					Buffer: l.buffer, Dst: dst, First: tensor, Last: tensor,
				})
			}
			i, off, dst = i+n, off+n*reg.stride, dst+uint64(n*reg.run)
		}
	}
}
