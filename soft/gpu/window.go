package gpu

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/internal/addrspace"
)

// A window is the range of device addresses of one card. It is reserved in the process
// without any access: no CPU memory can be there, and a stray access faults.
type window struct {
	// Space has a region for each block with addresses, and nil for reservations.
	addrspace.Space[gpu.Addr, *region]
	reserved []byte // never touched
	base     gpu.Addr
	size     uint64
}

// minWindow leaves room to allocate addresses in turn, so that a freed one is not valid
// again soon and a use after free is found.
const minWindow = 256 << 30

func newWindow(memory uint64) (*window, error) { return reserveWindow(memory, reserve) }

// reserveWindow takes a smaller window where addresses are limited, by ulimit -v or by
// valgrind, down to one in which all memory has an address.
func reserveWindow(memory uint64, reserve func(n int) ([]byte, error)) (*window, error) {
	w := &window{size: max(minWindow, 16*memory)}
	var err error
	for {
		if w.reserved, err = reserve(int(w.size + blockSize)); err == nil {
			break
		}
		if w.size/2 < memory {
			return nil, fmt.Errorf("reserve %d GiB of addresses for device memory: %w (fix: ulimit -v unlimited, or a smaller memory= in CULVERT_SOFT)", w.size>>30, err)
		}
		w.size /= 2
	}
	w.base = (gpu.HostAddr(w.reserved) + blockSize - 1) &^ (blockSize - 1)
	w.Space = addrspace.New[gpu.Addr, *region](w.base, w.base+gpu.Addr(w.size))
	return w, nil
}

func reserve(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
}

// overlaps reports whether any of [a, a+n) is a device address.
func (w *window) overlaps(a gpu.Addr, n uint64) bool {
	return a < w.base+gpu.Addr(w.size) && w.base < a+gpu.Addr(n)
}

func (w *window) close() error {
	return os.NewSyscallError("munmap", unix.Munmap(w.reserved))
}
