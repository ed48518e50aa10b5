package nvrm

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// memory is what a memory object stands for. It keeps the frames allocated.
type memory interface {
	card() *card
	// lend gives n bytes from off, or fails when they are not there.
	lend(off, n uint64) (*softgpu.Loan, error)
	// clone is the same memory, kept for somebody else.
	clone() (memory, error)
	drop()
}

// exported is memory behind a descriptor of the software GPU. An own duplicate
// of the descriptor keeps it.
type exported struct {
	m  *Manager
	c  *card
	fd *os.File
}

// fromDescriptor is the memory behind a descriptor of this process, or nil.
func (m *Manager) fromDescriptor(fd int) memory {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	e := &exported{m: m, fd: os.NewFile(uintptr(dup), "exported GPU memory")}
	probe, err := e.lend(0, 1)
	if err != nil {
		e.drop()
		return nil
	}
	defer probe.Return()
	e.c = m.cards[probe.GPU().Index()]
	return e
}

func (e *exported) card() *card { return e.c }

func (e *exported) lend(off, n uint64) (*softgpu.Loan, error) {
	return e.m.drv.LendExport(e.fd, off, n)
}

func (e *exported) clone() (memory, error) {
	if m := e.m.fromDescriptor(int(e.fd.Fd())); m != nil {
		return m, nil
	}
	return nil, os.ErrInvalid
}

func (e *exported) drop() { _ = e.fd.Close() } // nothing was written to it

// block is the memory that plain allocations stand on: all of one, or shared
// by several small ones. A loan of all of it keeps it.
type block struct {
	c    *card
	base gpu.Addr
	size uint64
	gen  uint64
	loan *softgpu.Loan // nil in CUDA's own client, whose allocations keep it
}

func (b *block) card() *card { return b.c }

func (b *block) lend(off, n uint64) (*softgpu.Loan, error) {
	frames, gen, first := b.loan.Frames()
	return b.c.gpu.LendFrames(frames, gen, first+off, n)
}

// clone fails when the block was freed, even if its address is in use again.
func (b *block) clone() (memory, error) {
	if b.loan != nil {
		frames, gen, off := b.loan.Frames()
		loan, err := b.c.gpu.LendFrames(frames, gen, off, b.size)
		if err != nil {
			return nil, err
		}
		return &block{b.c, b.base, b.size, b.gen, loan}, nil
	}
	loan, err := b.c.gpu.Lend(b.base, b.size)
	if err != nil {
		return nil, err
	}
	if _, gen, _ := loan.Frames(); gen != b.gen {
		loan.Return()
		return nil, os.ErrNotExist
	}
	return &block{b.c, b.base, b.size, b.gen, loan}, nil
}

func (b *block) drop() {
	if b.loan != nil {
		b.loan.Return()
	}
}
