package gpu

import (
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

func newWindow(memory uint64) (*window, error) {
	w := &window{size: max(minWindow, 16*memory)}
	var err error
	w.reserved, err = unix.Mmap(-1, 0, int(w.size+blockSize), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap of device addresses", err)
	}
	w.base = (gpu.HostAddr(w.reserved) + blockSize - 1) &^ (blockSize - 1)
	w.Space = addrspace.New[gpu.Addr, *region](w.base, w.base+gpu.Addr(w.size))
	return w, nil
}

// overlaps reports whether any of [a, a+n) is a device address.
func (w *window) overlaps(a gpu.Addr, n uint64) bool {
	return a < w.base+gpu.Addr(w.size) && w.base < a+gpu.Addr(n)
}

func (w *window) close() error {
	return os.NewSyscallError("munmap", unix.Munmap(w.reserved))
}
