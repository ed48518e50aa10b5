package nvrm

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A memory is what a memory object stands for. It keeps the frames allocated.
type memory interface {
	card() *card
	// acquire returns n bytes from off, or an error if they do not exist.
	acquire(off, n uint64) (*softgpu.Access, error)
	// clone returns the same memory, kept separately.
	clone() (memory, error)
	drop()
}

// An exported memory is behind a descriptor of the software GPU. A duplicate of the
// descriptor keeps it.
type exported struct {
	m  *Manager
	c  *card
	fd *os.File
}

// fromDescriptor returns the memory behind a descriptor of this process, or nil.
func (m *Manager) fromDescriptor(fd int) memory {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	e := &exported{m: m, fd: os.NewFile(uintptr(dup), "exported GPU memory")}
	probe, err := e.acquire(0, 1)
	if err != nil {
		e.drop()
		return nil
	}
	defer probe.Release()
	e.c = m.cards[probe.GPU().Index()]
	return e
}

func (e *exported) card() *card { return e.c }

func (e *exported) acquire(off, n uint64) (*softgpu.Access, error) {
	return e.m.drv.AcquireExport(e.fd, off, n)
}

func (e *exported) clone() (memory, error) {
	if m := e.m.fromDescriptor(int(e.fd.Fd())); m != nil {
		return m, nil
	}
	return nil, os.ErrInvalid
}

func (e *exported) drop() { _ = e.fd.Close() } // nothing was written to it

// A block contains plain allocations: one, or several small ones. An access to all of
// it keeps it.
type block struct {
	c      *card
	base   gpu.Addr
	size   uint64
	gen    uint64
	access *softgpu.Access // nil in CUDA's client, whose allocations keep it
}

func (b *block) card() *card { return b.c }

func (b *block) acquire(off, n uint64) (*softgpu.Access, error) {
	frames, gen, first := b.access.Frames()
	return b.c.gpu.AcquireFrames(frames, gen, first+off, n)
}

// clone fails if the block was freed, even if its address is in use again.
func (b *block) clone() (memory, error) {
	if b.access != nil {
		frames, gen, off := b.access.Frames()
		access, err := b.c.gpu.AcquireFrames(frames, gen, off, b.size)
		if err != nil {
			return nil, err
		}
		return &block{b.c, b.base, b.size, b.gen, access}, nil
	}
	access, err := b.c.gpu.Acquire(b.base, b.size)
	if err != nil {
		return nil, err
	}
	if _, gen, _ := access.Frames(); gen != b.gen {
		access.Release()
		return nil, os.ErrNotExist
	}
	return &block{b.c, b.base, b.size, b.gen, access}, nil
}

func (b *block) drop() {
	if b.access != nil {
		b.access.Release()
	}
}
