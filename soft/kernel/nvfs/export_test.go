package nvfs

import abi "github.com/culvert-io/culvert/internal/abi/nvfs"

// Idle waits for asynchronous transfers.
func (m *Module) Idle() { m.async.Wait() }

// HideBlocks has the module take all files for files of XFS, which keeps block
// counts from the VFS.
func (m *Module) HideBlocks() { m.vfsBlocks = func(int, int64) int64 { return 0 } }

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
