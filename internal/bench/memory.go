package bench

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// memory reads into host memory and writes from it, and leaves the GPU out. What
// it takes every way to a GPU takes, too, unless the CPU does not touch the bytes.
type memory struct{ f *os.File }

func (m *memory) name() string { return "memory" }
func (m *memory) close()       {}

func (m *memory) caller(mem gpu.Span) (caller, error) {
	buf, err := unix.Mmap(-1, 0, int(mem.Len), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of host memory: %w", mem.Len, err)
	}
	return &memoryCaller{m, buf}, nil
}

type memoryCaller struct {
	m   *memory
	buf []byte
}

func (t *memoryCaller) do(_ context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error {
	call := unix.Pread
	if dir == route.Write {
		call = unix.Pwrite
	}
	for i, off := range offs {
		n, err := transferAll(call, int(t.m.f.Fd()), t.m.f.Name(), t.buf[int64(i)*block:int64(i+1)*block], off)
		sum.Bytes += int64(n)
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

func (t *memoryCaller) close() { unix.Munmap(t.buf) }
