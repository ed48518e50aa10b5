package ring

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// A pool pins memory within a budget. What it gives out stays until close:
// pinning costs far more than any transfer that could use it.
type pinnedPool struct {
	dev    gpu.Device
	near   *unix.CPUSet // nil: anywhere
	budget int64

	mu     sync.Mutex
	pinned int64
	slabs  []slab
}

// alloc pins n bytes on a page border.
func (p *pinnedPool) alloc(n int64) (gpu.Addr, []byte, error) {
	n += page
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned+n > p.budget {
		return 0, nil, fmt.Errorf("ring: pinned memory is limited to %d bytes, of which %d are taken: %d more do not fit", p.budget, p.pinned, n)
	}
	var s slab
	err := runNear(p.near, func() (err error) {
		s, err = pin(p.dev, n)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("ring: pin %d bytes of host memory (%d of at most %d are pinned; see the memory limit of the container or lower the budget): %w",
			n, p.pinned, p.budget, err)
	}
	p.pinned += n
	p.slabs = append(p.slabs, s)
	skip := uint64(-s.addr) % page
	return s.addr + gpu.Addr(skip), gpu.HostBytes(s.addr, uint64(n))[skip : skip+uint64(n)-page], nil
}

func (p *pinnedPool) size() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pinned
}

func (p *pinnedPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, s := range p.slabs {
		err = errors.Join(err, s.free(p.dev))
	}
	p.slabs, p.pinned = nil, 0
	return err
}

// A slab is a stretch of pinned memory.
type slab struct {
	addr    gpu.Addr
	mapping []byte // what it was made of; nil where the driver has made it
}

const hugePage = 2 << 20

// pin pins n bytes: large slabs in huge pages, small ones, and where there is no
// way to pin memory in place, as the driver likes. What a disk is told of a read
// is a list of contiguous memory, and on the driver's pages that list is long.
func pin(dev gpu.Device, n int64) (slab, error) {
	if !race && n >= hugePage {
		if s, err := pinHuge(dev, n); err == nil {
			return s, nil
		}
	}
	a, err := dev.Alloc(gpu.KindHost, uint64(n), 0)
	return slab{addr: a}, err
}

// pinHuge pins memory of the process in huge pages, as far as the kernel has some.
func pinHuge(dev gpu.Device, n int64) (slab, error) {
	m, err := unix.Mmap(-1, 0, int(n+hugePage), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return slab{}, err
	}
	base := gpu.HostAddr(m)
	s := slab{addr: (base + hugePage - 1) &^ (hugePage - 1), mapping: m}
	// Only whole huge pages: the budget does not count what would lie behind the
	// last one. A kernel that has none has other pages.
	whole := s.mapping[s.addr-base:][:n&^(hugePage-1)]
	_ = unix.Madvise(whole, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(s.mapping[int(s.addr-base)+len(whole):], unix.MADV_NOHUGEPAGE)
	// Without this, a program that forks would go on with a copy, and the GPU with
	// the original.
	err = unix.Madvise(m, unix.MADV_DONTFORK)
	if err == nil {
		err = dev.Register(uintptr(s.addr), uint64(n), 0)
	}
	if err != nil {
		return slab{}, errors.Join(err, unix.Munmap(m))
	}
	return s, nil
}

func (s slab) free(dev gpu.Device) error {
	if s.mapping == nil {
		return dev.Free(s.addr)
	}
	return errors.Join(dev.Unregister(uintptr(s.addr)), unix.Munmap(s.mapping))
}
