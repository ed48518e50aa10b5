package pcie

import (
	"fmt"

	"github.com/culvert-io/culvert/soft/internal/addrspace"
	"github.com/culvert-io/culvert/soft/internal/gate"
)

// A Target is memory behind a window of physical addresses.
type Target interface {
	// Acquire appends the n bytes from off to segs. The range is inside the window.
	// The Releaser, unless it is nil, is called when the access ends.
	Acquire(segs [][]byte, off uint64, n int, d Dir) ([][]byte, Releaser, error)
}

// A Releaser is called at the end of an access.
type Releaser interface{ Release() }

// Memory is a Target that is never removed.
type Memory []byte

// Acquire appends a part of m.
func (m Memory) Acquire(segs [][]byte, off uint64, n int, _ Dir) ([][]byte, Releaser, error) {
	end := off + uint64(n)
	return append(segs, m[off:end:end]), nil, nil
}

// A Window is a range of physical addresses with memory behind it: a BAR of a device,
// or host memory.
type Window struct {
	f      *Fabric
	base   uint64
	size   uint64
	target Target
	owner  *Function // nil for host memory
	gate   gate.Gate // of accesses
}

// AddBAR adds a window to target. Its size must be a power of two, at least a page; its
// address is a multiple of the size.
func (fn *Function) AddBAR(size uint64, target Target) (*Window, error) {
	if size < pageSize || size&(size-1) != 0 {
		return nil, fmt.Errorf("pcie: %s: BAR size %d must be a power of two, at least %d", fn.name, size, pageSize)
	}
	w := &Window{f: fn.f, size: size, target: target, owner: fn}
	if !w.add(0, size) {
		return nil, fmt.Errorf("pcie: %s: add BAR of %d bytes: no addresses left", fn.name, size)
	}
	return w, nil
}

// AddHost gives memory of this process physical addresses, with the same offset in the
// page. The memory must be on the heap or mapped, so that it does not move.
func (f *Fabric) AddHost(b []byte) (*Window, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("pcie: add host memory: size is 0")
	}
	w := &Window{f: f, size: uint64(len(b)), target: Memory(b)}
	if !w.add(inPage(b), pageSize) {
		return nil, fmt.Errorf("pcie: add %d bytes of host memory: no physical addresses left", len(b))
	}
	return w, nil
}

// space returns the address space of w.
func (w *Window) space() *addrspace.Space[uint64, *Window] {
	if w.owner == nil {
		return &w.f.host
	}
	return &w.f.mmio
}

// add gives w addresses that begin at offset in a multiple of align.
func (w *Window) add(offset, align uint64) (ok bool) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	first, ok := w.space().Take(offset+w.size, align, w)
	w.base = first + offset
	return ok
}

// find returns the window at a physical address, or nil.
func (f *Fabric) find(phys uint64) *Window {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if phys >= mmioBase {
		return f.mmio.Find(phys)
	}
	return f.host.Find(phys)
}

// Base returns the physical address of the first byte.
func (w *Window) Base() uint64 { return w.base }

// Remove removes the window and waits for accesses, in a second call, too.
func (w *Window) Remove() {
	if !w.gate.Shut() {
		return
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.space().Remove(w.base &^ (pageSize - 1))
}
