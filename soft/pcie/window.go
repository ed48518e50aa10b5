package pcie

import "fmt"

// A Target is memory behind a window of physical addresses.
type Target interface {
	// Acquire appends the n bytes from off to segs. The range is inside the window.
	// The Releaser, unless it is nil, is called when the access ends.
	Acquire(segs [][]byte, off uint64, n int, d Dir) ([][]byte, Releaser, error)
}

// A Releaser is told of the end of an access.
type Releaser interface{ Release() }

// Memory is a Target that is never removed.
type Memory []byte

// Acquire appends a part of m.
func (m Memory) Acquire(segs [][]byte, off uint64, n int, _ Dir) ([][]byte, Releaser, error) {
	end := off + uint64(n)
	return append(segs, m[off:end:end]), nil, nil
}

// A BAR is a window to a device's memory.
type BAR struct{ r *region }

// AddBAR adds a window to target. Its size must be a power of two, at least a page; its
// address is a multiple of the size.
func (fn *Function) AddBAR(size uint64, target Target) (*BAR, error) {
	if size < pageSize || size&(size-1) != 0 {
		return nil, fmt.Errorf("pcie: %s: BAR size %d must be a power of two, at least %d", fn.name, size, pageSize)
	}
	b := &BAR{&region{span: span{size: size}, target: target, owner: fn}}
	if !fn.f.add(b.r, &fn.f.mmio, size) {
		return nil, fmt.Errorf("pcie: %s: add BAR of %d bytes: no addresses left", fn.name, size)
	}
	return b, nil
}

// Base returns the physical address of the window.
func (b *BAR) Base() uint64 { return b.r.base }

// Remove removes the window and waits for accesses, in a second call, too.
func (b *BAR) Remove() { b.r.owner.f.remove(b.r, &b.r.owner.f.mmio) }

// HostMemory is memory of this process that devices can reach.
type HostMemory struct {
	f      *Fabric
	r      *region
	offset uint64 // of the first byte in its page
}

// AddHost gives memory of this process physical addresses, with the same offset in the
// page. The memory must be on the heap or mapped, so that it does not move.
func (f *Fabric) AddHost(b []byte) (*HostMemory, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("pcie: add host memory: size is 0")
	}
	h := &HostMemory{f: f, offset: inPage(b)}
	h.r = &region{span: span{size: h.offset + uint64(len(b))}, target: hostTarget{b, h.offset}}
	if !f.add(h.r, &f.host, pageSize) {
		return nil, fmt.Errorf("pcie: add %d bytes of host memory: no physical addresses left", len(b))
	}
	return h, nil
}

// Phys returns the physical address of the first byte.
func (h *HostMemory) Phys() uint64 { return h.r.base + h.offset }

// Remove removes the addresses and waits for accesses, in a second call, too.
func (h *HostMemory) Remove() { h.f.remove(h.r, &h.f.host) }

// A hostTarget is host memory that begins inside its first page.
type hostTarget struct {
	m      Memory
	offset uint64
}

func (t hostTarget) Acquire(segs [][]byte, off uint64, n int, d Dir) ([][]byte, Releaser, error) {
	if off < t.offset {
		return segs, nil, ErrNoTarget
	}
	return t.m.Acquire(segs, off-t.offset, n, d)
}
