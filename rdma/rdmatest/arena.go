package rdmatest

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/rdma"
)

// An Arena is memory that two processes share, so that a test sees the memory of a device
// in the other one.
type Arena struct {
	mem []byte

	mu   sync.Mutex
	used []bool // by buffer
}

// arenaSize has room for the buffers of a few pairs.
const arenaSize = 16 * size

// NewArena makes the memory, and the file to give to the other process.
func NewArena() (*Arena, *os.File, error) {
	fd, err := unix.MemfdCreate("rdmatest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "rdmatest")
	if err := f.Truncate(arenaSize); err != nil {
		return nil, nil, err
	}
	a, err := OpenArena(f)
	return a, f, err
}

// OpenArena maps the memory of another process.
func OpenArena(f *os.File) (*Arena, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	return &Arena{mem: mem, used: make([]bool, arenaSize/size)}, nil
}

// Close unmaps it.
func (a *Arena) Close() error { return unix.Munmap(a.mem) }

// alloc returns zeros until the test ends.
func (a *Arena) alloc(t *testing.T) []byte {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, used := range a.used {
		if used {
			continue
		}
		a.used[i] = true
		t.Cleanup(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.used[i] = false
		})
		b := a.mem[i*size : (i+1)*size : (i+1)*size]
		clear(b)
		return b
	}
	t.Fatalf("a test needs more than %d buffers", len(a.used))
	return nil
}

// offset is where memory is in the arena.
func (a *Arena) offset(m rdma.Memory) (uint64, error) {
	off := m.Addr - uint64(gpu.HostAddr(a.mem))
	if off > arenaSize || m.Len > arenaSize-off {
		return 0, fmt.Errorf("%d bytes at %#x are not shared: %w", m.Len, m.Addr, syscall.EFAULT)
	}
	return off, nil
}
