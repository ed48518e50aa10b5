package tensor

// A layout gives the items of one device their places and makes the reads.
//
// Two tensors can be read at once only if they are as far apart on the device
// as they are in the file. A tensor's address must be aligned, so this works
// where their distance is a multiple of the alignment; such neighbours form a
// group, and a group is placed as a whole. What lies between two of its members
// is read too and ends up between them, where no tensor is.
type layout struct {
	plan   *Plan
	opts   PlanOptions
	device int

	buffer int    // where the next group goes, or -1
	end    uint64 // of what is used of it
	reads  int    // of the plan when this device began
}

// minPhased is the least size of a group that gets a place which agrees with its
// file within a page.
const minPhased = 16 * pageSize

// A group is a range of a file that goes to the device as it is.
type group struct {
	items    []item
	from, to int64
	over     int64 // bytes between items
}

func (l *layout) place(items []item) {
	l.buffer, l.reads = -1, len(l.plan.Reads)
	var g group
	for i := range items {
		it := items[i]
		if !l.joins(&g, &it) {
			l.flush(&g)
			g = group{from: it.off(), to: it.off()}
		}
		g.over += it.off() - g.to
		g.to = it.off() + it.reg.size()
		g.items = append(g.items, it)
	}
	l.flush(&g)
	if l.opts.Order == ByLayer {
		sortReads(l.plan.Reads[l.reads:], l.plan.Tensors)
	}
}

// joins reports whether the item can be read together with the group.
func (l *layout) joins(g *group, it *item) bool {
	if len(g.items) == 0 || l.opts.Alloc == PerTensor || it.reg.count > 1 {
		return false
	}
	last := &g.items[len(g.items)-1]
	gap := it.off() - g.to
	switch {
	case last.entry.File != it.entry.File || last.reg.count > 1:
		return false
	case l.opts.Order == ByLayer && last.layer != it.layer:
		return false
	case uint64(it.off()-g.from)%l.opts.Align != 0:
		return false
	}
	return gap <= maxGap && (g.over+gap)*maxOverRead <= it.off()+it.reg.size()-g.from
}

// flush gives a group its place and makes its reads.
func (l *layout) flush(g *group) {
	if len(g.items) == 0 {
		return
	}
	base := l.reserve(g)
	first := len(l.plan.Tensors)
	for i := range g.items {
		it := &g.items[i]
		placed := Placed{
			Name: it.entry.Name, Dtype: it.entry.Dtype, Shape: it.reg.shape, Cuts: it.cuts,
			File: it.entry.File, Buffer: l.buffer,
			Off: base + uint64(it.off()-g.from), Len: uint64(it.reg.size()), layer: it.layer,
		}
		if len(it.cuts) > 0 {
			placed.Whole = it.entry.Shape
		}
		l.plan.Tensors = append(l.plan.Tensors, placed)
	}
	last := len(l.plan.Tensors) - 1
	if reg := g.items[0].reg; reg.count > 1 {
		l.readRuns(g, base, first)
		return
	}
	l.readRange(g, base, first, last)
}

// reserve finds room for a group and returns its offset in the buffer.
func (l *layout) reserve(g *group) uint64 {
	if l.buffer < 0 || l.opts.Alloc == PerTensor {
		l.buffer, l.end = len(l.plan.Buffers), 0
		l.plan.Buffers = append(l.plan.Buffers, Buffer{Device: l.device})
	}
	size, runs := uint64(g.to-g.from), g.items[0].reg.count
	base := alignUp(l.end, l.opts.Align)
	// Where file and device agree within a page, direct I/O needs no detour.
	// For less than a few pages it is not worth the room.
	if phase := uint64(g.from) % pageSize; runs == 1 && size >= minPhased && phase%l.opts.Align == 0 && l.opts.Alloc == PerDevice {
		base = l.end + (phase-l.end)%pageSize
		base = alignUp(base, l.opts.Align)
	}
	l.end = base + size
	// An empty tensor has an address too.
	l.plan.Buffers[l.buffer].Size = max(l.end, 1)
	return base
}

func alignUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// readRange reads a contiguous group, in segments that end on page borders.
func (l *layout) readRange(g *group, base uint64, first, last int) {
	for from := g.from; from < g.to; {
		to := g.to
		if to-from > l.opts.MaxRead {
			to = (from + l.opts.MaxRead) / pageSize * pageSize
		}
		r := Read{
			File: g.items[0].entry.File, Off: from, Len: to - from, Count: 1,
			Buffer: l.buffer, Dst: base + uint64(from-g.from),
		}
		from = to
		if r.First, r.Last = l.touched(&r, first, last); l.brings(&r) {
			l.plan.Reads = append(l.plan.Reads, r)
		}
	}
}

// touched narrows first and last to the tensors that the read brings bytes of.
func (l *layout) touched(r *Read, first, last int) (int, int) {
	ts, from, to := l.plan.Tensors, r.Dst, r.Dst+uint64(r.Len)
	for first < last && ts[first].Off+ts[first].Len <= from {
		first++
	}
	for last > first && ts[last].Off >= to {
		last--
	}
	return first, last
}

// brings reports whether a read has bytes of a tensor: a small one may lie between
// two of them.
func (l *layout) brings(r *Read) bool {
	t := &l.plan.Tensors[r.First]
	return t.Off < r.Dst+uint64(r.Len) && t.Off+t.Len > r.Dst
}

// readRuns reads a strided part of one tensor. The runs between its own are
// other ranks': merging over them would put their bytes on the device.
func (l *layout) readRuns(g *group, base uint64, tensor int) {
	it := &g.items[0]
	reg := it.reg
	if reg.run > l.opts.MaxRead {
		for i := range reg.count {
			one := group{items: g.items, from: it.off() + i*reg.stride}
			one.to = one.from + reg.run
			l.readRange(&one, base+uint64(i*reg.run), tensor, tensor)
		}
		return
	}
	each := l.opts.MaxRead / reg.run
	for i := int64(0); i < reg.count; i += each {
		l.plan.Reads = append(l.plan.Reads, Read{
			File: it.entry.File, Off: it.off() + i*reg.stride,
			Len: reg.run, Count: min(each, reg.count-i), Stride: reg.stride,
			Buffer: l.buffer, Dst: base + uint64(i*reg.run), First: tensor, Last: tensor,
		})
	}
}
