package gpu

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// A window is the range of device addresses of one card. It is reserved in the
// process without any access, so that no CPU memory can come to lie there and a
// stray access faults.
type window struct {
	reserved []byte // never touched
	base     gpu.Addr
	size     uint64
	free     []extent // sorted, not touching
	next     gpu.Addr // where to look first
}

type extent struct {
	base gpu.Addr
	size uint64
}

// minWindow leaves room to hand addresses out in turn, so that a freed one is
// not valid again soon and a use after free is found.
const minWindow = 256 << 30

func newWindow(memory uint64) (*window, error) {
	w := &window{size: max(minWindow, 16*memory)}
	var err error
	w.reserved, err = unix.Mmap(-1, 0, int(w.size+blockSize), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap of device addresses", err)
	}
	w.base = (gpu.HostAddr(w.reserved) + blockSize - 1) &^ (blockSize - 1)
	w.next = w.base
	w.free = []extent{{w.base, w.size}}
	return w, nil
}

func (w *window) contains(a gpu.Addr) bool { return a >= w.base && uint64(a-w.base) < w.size }

// overlaps reports whether any of [a, a+n) is a device address.
func (w *window) overlaps(a gpu.Addr, n uint64) bool {
	return a < w.base+gpu.Addr(w.size) && w.base < a+gpu.Addr(n)
}

// take returns n addresses, a multiple of blockSize, at or after next where
// there is room, else the first that will do.
func (w *window) take(n uint64) (gpu.Addr, bool) {
	for _, from := range []gpu.Addr{w.next, w.base} {
		for i, e := range w.free {
			at := max(e.base, from)
			end := e.base + gpu.Addr(e.size)
			if end < at || uint64(end-at) < n {
				continue
			}
			w.next = at + gpu.Addr(n)
			w.free = cut(w.free, i, extent{at, n})
			return at, true
		}
	}
	return 0, false
}

func (w *window) give(a gpu.Addr, n uint64) { w.free = join(w.free, extent{a, n}) }

// cut takes part out of list[i].
func cut(list []extent, i int, part extent) []extent {
	e := list[i]
	before := extent{e.base, uint64(part.base - e.base)}
	after := extent{part.base + gpu.Addr(part.size), e.size - before.size - part.size}
	switch {
	case before.size > 0 && after.size > 0:
		list[i] = before
		return slices.Insert(list, i+1, after)
	case before.size > 0:
		list[i] = before
	case after.size > 0:
		list[i] = after
	default:
		return slices.Delete(list, i, i+1)
	}
	return list
}

// join adds an extent to a sorted list and merges it with its neighbours.
func join(list []extent, e extent) []extent {
	i, _ := slices.BinarySearchFunc(list, e.base, func(x extent, a gpu.Addr) int {
		if x.base < a {
			return -1
		}
		return 1
	})
	if i < len(list) && e.base+gpu.Addr(e.size) == list[i].base {
		e.size += list[i].size
		list = slices.Delete(list, i, i+1)
	}
	if i > 0 && list[i-1].base+gpu.Addr(list[i-1].size) == e.base {
		list[i-1].size += e.size
		return list
	}
	return slices.Insert(list, i, e)
}

func (w *window) close() error {
	return os.NewSyscallError("munmap", unix.Munmap(w.reserved))
}
