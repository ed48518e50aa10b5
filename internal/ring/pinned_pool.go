package ring

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// A pinnedPool pins memory within a budget. It stays pinned until close, because
// pinning costs far more than a transfer that uses it.
type pinnedPool struct {
	dev    gpu.Device
	near   *unix.CPUSet // where memory is touched first; nil: anywhere
	budget int64

	mu     sync.Mutex // not held while memory is pinned: pipelines are made at the same time
	pinned int64      // or about to be
	slabs  []slab
}

// alloc pins n bytes that start on a page.
func (p *pinnedPool) alloc(n int64) (gpu.Addr, []byte, error) {
	n += page
	if err := p.reserve(n); err != nil {
		return 0, nil, err
	}
	var s slab
	err := runNear(p.near, func() (err error) {
		s, err = pin(p.dev, n)
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.pinned -= n
		return 0, nil, fmt.Errorf("ring: pin %d bytes of host memory (%d of %d bytes pinned; fix: raise ulimit -l or the container memory limit): %w",
			n, p.pinned, p.budget, err)
	}
	p.slabs = append(p.slabs, s)
	skip := uint64(-s.addr) % page
	return s.addr + gpu.Addr(skip), gpu.HostBytes(s.addr, uint64(n))[skip : skip+uint64(n)-page], nil
}

// reserve takes n bytes of the budget.
func (p *pinnedPool) reserve(n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned+n > p.budget {
		return fmt.Errorf("ring: pin %d bytes: over budget (%d of %d bytes pinned)", n, p.pinned, p.budget)
	}
	p.pinned += n
	return nil
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

// A slab is one pinned allocation.
type slab struct {
	addr    gpu.Addr
	mapping []byte // nil if the driver has allocated it
}

const hugePage = 2 << 20

// pin pins n bytes: in huge pages if the slab is large, or else in memory of the
// driver. A disk read with O_DIRECT is described by a list of contiguous memory,
// which is long for the driver's single pages.
func pin(dev gpu.Device, n int64) (slab, error) {
	if !race && n >= hugePage {
		if s, err := pinHuge(dev, n); err == nil {
			return s, nil
		}
	}
	a, err := dev.Alloc(gpu.KindHost, uint64(n), 0)
	return slab{addr: a}, err
}

// pinHuge pins memory of the process, in huge pages if the kernel has some.
func pinHuge(dev gpu.Device, n int64) (slab, error) {
	m, err := unix.Mmap(-1, 0, int(n+hugePage), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return slab{}, err
	}
	base := gpu.HostAddr(m)
	s := slab{addr: (base + hugePage - 1) &^ (hugePage - 1), mapping: m}
	// Only whole huge pages: the budget does not count what would follow the slab in
	// the last one. A kernel without huge pages uses others.
	whole := s.mapping[s.addr-base:][:n&^(hugePage-1)]
	_ = unix.Madvise(whole, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(s.mapping[int(s.addr-base)+len(whole):], unix.MADV_NOHUGEPAGE)
	// Otherwise a program that forks would continue with a copy of the memory, and
	// the GPU with the original.
	err = unix.Madvise(m, unix.MADV_DONTFORK)
	if err == nil {
		touch(gpu.HostBytes(s.addr, uint64(n)))
		err = dev.Register(uintptr(s.addr), uint64(n), 0)
	}
	if err != nil {
		return slab{}, errors.Join(err, unix.Munmap(m))
	}
	return s, nil
}

// touch makes the kernel provide memory before the driver pins it. Threads that fault
// do so at the same time. The driver would fault with the address space locked, and
// each pipeline of a first load wait for the one before: 3 ms each, 40 ms for all.
func touch(mem []byte) {
	for i := 0; i < len(mem); i += page {
		mem[i] = 0
	}
}

func (s slab) free(dev gpu.Device) error {
	if s.mapping == nil {
		return dev.Free(s.addr)
	}
	return errors.Join(dev.Unregister(uintptr(s.addr)), unix.Munmap(s.mapping))
}
