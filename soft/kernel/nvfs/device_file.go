package nvfs

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/internal/shared"
	"github.com/culvert-io/culvert/soft/kernel"
)

// A File is one open of a device node.
type File struct {
	m    *Module
	once sync.Once
}

var _ kernel.File = (*File)(nil)

func (m *Module) open() *File {
	m.use()
	m.stats.opens.Add(1)
	return &File{m: m}
}

// Release is the last close.
func (f *File) Release() {
	f.once.Do(func() {
		f.m.stats.opens.Add(-1)
		f.m.unuse()
	})
}

// Mmap makes a shadow buffer.
func (f *File) Mmap(off int64, n, prot int) (kernel.Mapping, error) {
	if n <= 0 {
		return nil, syscall.EINVAL // checked by the kernel, before the module
	}
	if off != 0 {
		return nil, syscall.EIO
	}
	size := (n + abi.BLOCK_SIZE - 1) &^ (abi.BLOCK_SIZE - 1)
	f.m.stats.mmap.n.Add(1)
	v, err := f.m.mmap(size, prot)
	f.m.stats.mmap.done(err)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (m *Module) mmap(size, prot int) (*view, error) {
	switch {
	case size > abi.MAX_SHADOW:
		return nil, syscall.EINVAL
	case size > abi.GPU_PAGE_SIZE && size%abi.GPU_PAGE_SIZE != 0:
		return nil, syscall.EINVAL
	case prot != unix.PROT_READ|unix.PROT_WRITE:
		return nil, syscall.EINVAL
	}
	mem, user, err := newShadow(size)
	if err != nil {
		return nil, syscall.ENOMEM
	}
	g := newMgroup(m, mem)
	v := &view{g: g, mem: user}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups[g.base] = g
	m.views = append(m.views, v)
	m.stats.shadow.Add(int64(size))
	return v, nil
}

// A view is a shadow buffer in the process's address space: a VMA.
type view struct {
	g    *mgroup
	mem  []byte
	gone atomic.Bool
}

func (v *view) Len() int { return len(v.mem) }

// Unmap is the only way to undo MAP. It never waits for a transfer or for another
// Unmap. A second call does nothing.
func (v *view) Unmap() error {
	if v.gone.Swap(true) {
		return nil
	}
	m := v.g.m
	m.at("nvfs.munmap", v.g)
	m.mu.Lock()
	m.views = slices.DeleteFunc(m.views, func(x *view) bool { return x == v })
	m.mu.Unlock()
	err := shared.Unmap(v.mem)
	m.stats.munmap.Add(1)
	v.g.unmapped()
	return err
}

// find returns the view that contains an address, and the offset in it.
func (m *Module) find(addr uint64) (v *view, off uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.views {
		if start := uint64(v.Addr()); addr >= start && addr-start < uint64(len(v.mem)) {
			return v, addr - start
		}
	}
	return nil, 0
}

// bound returns the mgroup that MAP bound at an address, with a reference for the
// caller.
func (m *Module) bound(addr uint64) (*mgroup, error) {
	v, _ := m.find(addr)
	if v == nil || addr == 0 || !v.g.hold(addr) {
		return nil, syscall.EINVAL
	}
	return v.g, nil
}
