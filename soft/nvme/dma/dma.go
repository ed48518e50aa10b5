// Package dma gives a device access to memory of the process, as a kernel module that
// pins pages does: host memory by page, GPU memory through nvidia_p2p.
package dma

import (
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// HostPage is the size of host pages; GPU pages have p2p.PageSize.
const HostPage = 4096

// A Map is memory that a device can reach.
type Map struct {
	Addrs    []uint64 // bus addresses of the pages, in order
	PageSize uint64
	end      func() error
}

// Unmap removes the mapping and waits for DMA in flight. It returns EINVAL if the
// mapping has ended.
func (m *Map) Unmap() error { return m.end() }

// Host maps whole pages of host memory. With a random source the pages get addresses
// that are not adjacent.
func Host(fn *pcie.Function, b []byte, chance *rand.Rand) (*Map, error) {
	if len(b) == 0 || len(b)%HostPage != 0 {
		return nil, syscall.EINVAL
	}
	h := &hostMap{addrs: make([]uint64, len(b)/HostPage)}
	if err := h.add(fn.Fabric(), b, chance); err != nil {
		h.remove()
		return nil, err
	}
	var err error
	if h.m, err = fn.Map(h.addrs, HostPage); err != nil {
		h.remove()
		return nil, err
	}
	return &Map{Addrs: h.m.Addrs(), PageSize: HostPage, end: h.end}, nil
}

// A hostMap is host memory on the fabric, contiguous or in pages.
type hostMap struct {
	once   sync.Once
	pieces []*pcie.Window
	addrs  []uint64 // physical
	m      *pcie.Mapping
}

func (h *hostMap) add(f *pcie.Fabric, b []byte, chance *rand.Rand) error {
	if chance == nil {
		p, err := f.AddHost(b)
		if err != nil {
			return err
		}
		h.pieces = append(h.pieces, p)
		for i := range h.addrs {
			h.addrs[i] = p.Base() + uint64(i)*HostPage
		}
		return h.aligned()
	}
	for _, i := range chance.Perm(len(h.addrs)) {
		p, err := f.AddHost(b[i*HostPage:][:HostPage])
		if err != nil {
			return err
		}
		h.pieces = append(h.pieces, p)
		h.addrs[i] = p.Base()
		// A gap, so that no two pages are adjacent.
		gap, err := f.AddHost(b[:HostPage])
		if err != nil {
			return err
		}
		gap.Remove()
	}
	return h.aligned()
}

func (h *hostMap) aligned() error {
	if h.addrs[0]%HostPage != 0 {
		return syscall.EINVAL
	}
	return nil
}

func (h *hostMap) remove() {
	for _, p := range h.pieces {
		p.Remove()
	}
}

func (h *hostMap) end() error {
	err := error(syscall.EINVAL)
	h.once.Do(func() {
		h.m.Unmap()
		h.remove()
		err = nil
	})
	return err
}

// GPU pins n bytes of GPU memory at va for the process of a task, and maps them.
// lost, if not nil, is called when the owner frees the memory, before the addresses
// become invalid.
func GPU(fn *pcie.Function, rm *p2p.RM, t *p2p.Task, va, n uint64, lost func()) (*Map, error) {
	g := &gpuMap{rm: rm, task: t, fn: fn, va: va, lost: lost}
	table, err := rm.GetPages(t, va, n, g.free)
	if err != nil {
		return nil, err
	}
	m, err := rm.DMAMapPages(fn, table)
	if err != nil {
		return nil, errors.Join(err, rm.PutPages(t, va, table))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return nil, syscall.EINVAL // freed before it was mapped
	}
	g.table, g.m = table, m
	return &Map{Addrs: m.Addresses, PageSize: p2p.PageSize, end: g.end}, nil
}

// A gpuMap is pinned GPU memory.
type gpuMap struct {
	rm   *p2p.RM
	task *p2p.Task
	fn   *pcie.Function
	va   uint64
	lost func()

	mu    sync.Mutex
	gone  bool // unmapped or freed
	table *p2p.PageTable
	m     *p2p.DMAMapping
}

// free is the free callback. The mapping ends with the pin.
func (g *gpuMap) free(*p2p.Task, *p2p.PageTable) {
	g.mu.Lock()
	g.gone = true
	g.mu.Unlock()
	if g.lost != nil {
		g.lost()
	}
}

// end puts the pages, without the lock: that waits for a running callback, which
// takes it.
func (g *gpuMap) end() error {
	g.mu.Lock()
	gone := g.gone
	g.gone = true
	g.mu.Unlock()
	if gone {
		return syscall.EINVAL
	}
	return errors.Join(g.rm.DMAUnmapPages(g.fn, g.table, g.m), g.rm.PutPages(g.task, g.va, g.table))
}
