package ring

import (
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

func spread(v []float64) (mid, lo, hi float64) {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2], s[0], s[len(s)-1]
}

// duel runs theirs, ours, ours and theirs, so many times: a disk that others use,
// too, is seldom as fast as it was a second ago. The ratio is the median of those
// of the turns.
func (h *bench) duel(name string, turns int, ours, theirs func() int64) {
	if !h.wanted(name) {
		return
	}
	// perByte is how long something takes.
	perByte := func(do func() int64) float64 {
		start := time.Now()
		n := do()
		return time.Since(start).Seconds() / float64(n)
	}
	var mine, ratios []float64
	for range turns {
		b := perByte(theirs)
		a := perByte(ours) + perByte(ours)
		b += perByte(theirs)
		mine, ratios = append(mine, 2/a/1e9), append(ratios, b/a)
	}
	l := line{Name: name}
	l.GBps, l.Min, l.Max = spread(mine)
	l.OfPeer, l.OfPeerMin, l.OfPeerMax = spread(ratios)
	h.add(l)
}

// hostMem is memory of the process, for the peers.
func (h *bench) hostMem(n int64) []byte {
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { unix.Munmap(m) })
	return m
}

// writes measures the GPU to a file: over cached pages, and to a new file, each
// in turns with pwrites of host memory by as many threads.
func (h *bench) writes(f *hwFile) {
	total := min(f.size, 2<<30)
	part := &hwFile{buffered: f.buffered, direct: f.direct, size: total}
	pipelines, slot := h.r.sizing.pipelines, h.r.sizing.slot
	if !h.wanted("write " + f.name) {
		return
	}
	mem := h.hostMem(int64(pipelines) * slot)
	plain := func(fd int) {
		timed(h.t, pipelines, slot, total, func(c int, off, n int64) error {
			pipeline := int64(c)
			_, err := unix.Pwrite(fd, mem[pipeline*slot:pipeline*slot+n], off)
			return err
		})
	}
	h.duel("write "+f.name+" over cached pages, one request, of pwrite", 3,
		func() int64 { return h.move(part, 1, total, Request{Write: true, Buffered: f.buffered, Direct: -1}) },
		func() int64 { plain(f.buffered); return total })
	h.duel("write "+f.name+" over cached pages 16x1M, of pwrite", 3,
		func() int64 { return h.move(part, 16, 1<<20, Request{Write: true, Buffered: f.buffered, Direct: -1}) },
		func() int64 { plain(f.buffered); return total })
	fresh := func(write func(fd int)) func() int64 {
		return func() int64 {
			fd := h.create(f.path + "-new")
			write(fd)
			if err := unix.Ftruncate(fd, 0); err != nil {
				h.t.Error(err)
			}
			return total
		}
	}
	h.duel("write "+f.name+" new file, one request, of pwrite", 3,
		fresh(func(fd int) { h.move(part, 1, total, Request{Write: true, Buffered: fd, Direct: -1}) }),
		fresh(plain))
	if f.direct >= 0 && f.name == "disk" {
		aligned := h.hostMem(int64(pipelines) * slot)
		h.duel("write "+f.name+" O_DIRECT, one request, of pwrite", 3,
			func() int64 {
				return h.move(part, 1, total, Request{Write: true, Buffered: f.buffered, Direct: f.direct, Align: 512})
			},
			func() int64 {
				timed(h.t, pipelines, slot, total, func(c int, off, n int64) error {
					pipeline := int64(c)
					_, err := unix.Pwrite(f.direct, aligned[pipeline*slot:pipeline*slot+n], off)
					return err
				})
				return total
			})
	}
}

// coldTurns is odd, for the median.
const coldTurns = 15

// cold measures O_DIRECT from disk against plain O_DIRECT preads by as many
// threads, the cache dropped before each.
func (h *bench) cold(f *hwFile) {
	if f.direct < 0 || !h.wanted("cold "+f.name) {
		return
	}
	total := min(f.size, 256<<20)
	part := &hwFile{buffered: f.buffered, direct: f.direct, size: total}
	pipelines, slot := h.r.sizing.pipelines, h.r.sizing.slot
	mem := h.hostMem(max(16, int64(pipelines)) * max(slot, 4<<20))
	drop := func() {
		if err := unix.Fdatasync(f.buffered); err != nil {
			h.t.Error(err)
		}
		if err := unix.Fadvise(f.buffered, 0, 0, unix.FADV_DONTNEED); err != nil {
			h.t.Error(err)
		}
	}
	raw := func(threads int, block int64) func() int64 {
		return func() int64 {
			timed(h.t, threads, block, total, func(c int, off, n int64) error {
				at := int64(c) * block
				_, err := unix.Pread(f.direct, mem[at:at+n], off)
				return err
			})
			return total
		}
	}
	like := Request{Buffered: f.buffered, Direct: f.direct, Align: 512}
	drop()
	turns := 1
	if h.opt.runs > 1 {
		turns = coldTurns
	}
	// How far the same reads differ from themselves says what the others are worth.
	h.duel("cold "+f.name+" O_DIRECT preads of themselves", turns, raw(16, 1<<20), raw(16, 1<<20))
	h.duel("cold "+f.name+" one request, of O_DIRECT preads", turns,
		func() int64 { return h.move(part, 1, total, like) }, raw(pipelines, slot))
	h.duel("cold "+f.name+" 16x1M, of O_DIRECT preads", turns,
		func() int64 { return h.move(part, 16, 1<<20, like) }, raw(16, 1<<20))
	h.duel("cold "+f.name+" 16x4M, of O_DIRECT preads", turns,
		func() int64 { return h.move(part, 16, 4<<20, like) }, raw(16, 4<<20))
	h.duel("cold "+f.name+" 1x1M, of O_DIRECT preads", turns,
		func() int64 { return h.move(&hwFile{size: total / 4}, 1, 1<<20, like) },
		func() int64 {
			timed(h.t, 1, 1<<20, total/4, func(c int, off, n int64) error {
				_, err := unix.Pread(f.direct, mem[:n], off)
				return err
			})
			return total / 4
		})
}
