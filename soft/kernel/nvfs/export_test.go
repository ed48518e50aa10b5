package nvfs

import (
	"fmt"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// Balance says which counters do not add up when nothing is in progress.
func (m *Module) Balance() error {
	s := &m.stats
	for name, c := range map[string]*counter{
		"mmap": &s.mmap, "map": &s.bar1, "batch": &s.batches, "read": &s.reads.counter, "write": &s.writes.counter,
	} {
		if c.n.Load() != c.ok.Load()+c.err.Load() {
			return fmt.Errorf("%s: %v", name, c)
		}
	}
	if ok, gone := s.bar1.ok.Load(), s.frees.Load()+s.callbacks.Load(); ok != gone || s.shadow.Load() != 0 || s.mmap.ok.Load() != s.munmap.Load() {
		return fmt.Errorf("%d buffers were mapped, %d released; %d bytes of shadow buffers", ok, gone, s.shadow.Load())
	}
	if r, w := s.reads.active.Load(), s.writes.active.Load(); r != 0 || w != 0 {
		return fmt.Errorf("%d reads and %d writes in flight", r, w)
	}
	for _, g := range s.gpus {
		if g.pinned != 0 {
			return fmt.Errorf("%s: %d bytes pinned", g.name, g.pinned)
		}
	}
	return nil
}

// Idle waits for asynchronous transfers.
func (m *Module) Idle() { m.async.Wait() }

// HideBlocks has the module take all files for files of XFS, which keeps block
// counts from the VFS, or of another file system, whatever they lie on.
func (m *Module) HideBlocks(xfs bool) { m.hidesBlocks = func(int, uint64) bool { return xfs } }

// A VMA is what a program can do to a mapping beyond the seam.
type VMA interface {
	Split() error
	Remap(n int) error
}

// VMAAt is the shadow buffer at an address.
func (m *Module) VMAAt(addr uint64) VMA {
	v, _ := m.find(addr)
	return v
}

// State is the state and the references of the shadow buffer at an address.
func (m *Module) State(addr uint64) (abi.State, int) {
	v, _ := m.find(addr)
	if v == nil {
		return abi.IO_FREE, 0
	}
	v.g.mu.Lock()
	defer v.g.mu.Unlock()
	return v.g.state, v.g.refs
}

// OpenFile is an open of a node that the OS does not know of: closing it waits
// for nobody.
func (m *Module) OpenFile() *File { return m.open() }

// Exit is the end of the process.
func (m *Module) Exit() { m.exit() }

// MmapPrivate is mmap with MAP_PRIVATE, which the module refuses.
func (f *File) MmapPrivate() error {
	f.m.stats.mmap.n.Add(1)
	f.m.stats.mmap.done(syscall.EINVAL)
	return syscall.EINVAL
}

// Split is munmap of a part, which the module refuses: the buffer stays whole.
func (v *view) Split() error { return syscall.ENOMEM }

// Remap is mremap, which the module refuses.
func (v *view) Remap(n int) error {
	if n > len(v.mem) {
		return syscall.EFAULT // by the kernel: VM_DONTEXPAND
	}
	return syscall.ENOMEM
}
