package gdrdrv

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
)

// A File is one open of the device node. It belongs to the process that opened it.
type File struct {
	m     *Module
	owner *p2p.Process
	once  sync.Once
	leave func()

	mu      sync.Mutex
	buffers map[uint64]*buffer // by handle
	next    uint64             // next handle
	closed  bool
}

var _ kernel.File = (*File)(nil)

// Open opens the device node for a process.
func (m *Module) Open(p *p2p.Process) *File {
	f := &File{m: m, owner: p, buffers: map[uint64]*buffer{}}
	f.leave = p.OnExit(f.Release)
	return f
}

// By returns the file as another process sees it that inherited it. The module
// rejects all calls of such a process.
func (f *File) By(p *p2p.Process) kernel.File {
	if p == f.owner {
		return f
	}
	return foreign{f}
}

// lastHandle is the last whose offset fits into a file offset.
const lastHandle = math.MaxInt64 / abi.HOST_PAGE

// add assigns a handle. Handles are page offsets: they do not overlap and are never
// reused.
func (f *File) add(b *buffer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	pages := max(1, b.size/abi.HOST_PAGE)
	switch {
	case f.closed: // by the end of the process, during the call
		return syscall.EBADF
	case f.next > lastHandle-pages:
		return syscall.ENOMEM
	}
	b.handle = f.next
	f.next += pages
	f.buffers[b.handle] = b
	return nil
}

func (f *File) find(handle uint64) (*buffer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.buffers[handle]; b != nil {
		return b, nil
	}
	return nil, syscall.EINVAL
}

// take is find and removes the buffer.
func (f *File) take(handle uint64) (*buffer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.buffers[handle]
	if b == nil {
		return nil, syscall.EINVAL
	}
	delete(f.buffers, handle)
	return b, nil
}

// Mmap maps the buffer whose handle is the page offset.
func (f *File) Mmap(off int64, n, prot int) (kernel.Mapping, error) {
	if off < 0 || off%abi.HOST_PAGE != 0 || n <= 0 {
		return nil, syscall.EINVAL
	}
	b, err := f.find(uint64(off / abi.HOST_PAGE))
	if err != nil {
		return nil, err
	}
	return b.mmap((uint64(n)+abi.HOST_PAGE-1)&^(abi.HOST_PAGE-1), prot)
}

// Release unpins everything.
func (f *File) Release() {
	f.once.Do(func() {
		f.leave()
		f.mu.Lock()
		all := slices.SortedFunc(maps.Values(f.buffers), func(a, b *buffer) int { return cmp.Compare(a.handle, b.handle) })
		clear(f.buffers)
		f.closed = true
		f.mu.Unlock()
		for _, b := range all {
			f.m.cfg.Points.At("gdrdrv.release", b.id)
			_ = b.unpin() // no one to report to
		}
	})
}
