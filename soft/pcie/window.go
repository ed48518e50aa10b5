package pcie

import "fmt"

// A Target is memory behind a window of physical addresses.
type Target interface {
	// Lend appends the n bytes from off to segs. The range lies inside the
	// window. The hold, unless it is nil, is released when the loan ends.
	Lend(segs [][]byte, off uint64, n int, d Dir) ([][]byte, Hold, error)
}

// A Hold keeps lent memory in place.
type Hold interface{ Release() }

// Memory is a Target that is always there: the memory buffer of a controller,
// or a range of host memory.
type Memory []byte

// Lend lends a part of m.
func (m Memory) Lend(segs [][]byte, off uint64, n int, _ Dir) ([][]byte, Hold, error) {
	end := off + uint64(n)
	return append(segs, m[off:end:end]), nil, nil
}

// A BAR is a window through which a device's memory is reached.
type BAR struct{ r *region }

// AddBAR gives the device a window with target behind it, at an address that is
// a multiple of its size, which must be a power of two of at least a page.
func (fn *Function) AddBAR(size uint64, target Target) (*BAR, error) {
	if size < pageSize || size&(size-1) != 0 {
		return nil, fmt.Errorf("pcie: %s: a BAR of %d bytes: the size must be a power of two from %d on", fn.name, size, pageSize)
	}
	b := &BAR{&region{span: span{size: size}, target: target, owner: fn}}
	if !fn.f.add(b.r, &fn.f.mmio, size) {
		return nil, fmt.Errorf("pcie: %s: no addresses left for a BAR of %d bytes", fn.name, size)
	}
	return b, nil
}

// Base is the physical address of the window's first byte.
func (b *BAR) Base() uint64 { return b.r.base }

// Size is the size of the window.
func (b *BAR) Size() uint64 { return b.r.size }

// Remove takes the window away. It waits for loans of its memory. A second
// call waits too, and does nothing else.
func (b *BAR) Remove() { b.r.owner.f.remove(b.r, &b.r.owner.f.mmio) }

// HostMemory is memory of this process that devices may reach.
type HostMemory struct {
	f      *Fabric
	r      *region
	offset uint64 // of the first byte in its page
}

// AddHost gives memory of this process physical addresses. The bytes keep
// their place in the page. The memory must not move: it is the heap's or
// mapped.
func (f *Fabric) AddHost(b []byte) (*HostMemory, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("pcie: host memory: 0 bytes")
	}
	h := &HostMemory{f: f, offset: inPage(b)}
	h.r = &region{span: span{size: h.offset + uint64(len(b))}, target: hostTarget{b, h.offset}}
	if !f.add(h.r, &f.host, pageSize) {
		return nil, fmt.Errorf("pcie: no physical addresses left for %d bytes of host memory", len(b))
	}
	return h, nil
}

// Phys is the physical address of the first byte.
func (h *HostMemory) Phys() uint64 { return h.r.base + h.offset }

// Remove takes the addresses back. It waits for loans of the memory. A second
// call waits too, and does nothing else.
func (h *HostMemory) Remove() { h.f.remove(h.r, &h.f.host) }

// A hostTarget is host memory that begins inside its first page.
type hostTarget struct {
	m      Memory
	offset uint64
}

func (t hostTarget) Lend(segs [][]byte, off uint64, n int, d Dir) ([][]byte, Hold, error) {
	if off < t.offset {
		return segs, nil, ErrNoTarget
	}
	return t.m.Lend(segs, off-t.offset, n, d)
}
