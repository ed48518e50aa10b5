package nvme

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev"
)

// registers is the memory behind BAR0. All accesses are atomic, because drivers
// access it at any time.
type registers struct {
	mem  []byte
	file *os.File // nil when mem is on the heap
	own  dev.Mapping
}

func newRegisters(size uint64, heap bool) (*registers, error) {
	if heap {
		words := make([]uint64, size/8)
		return &registers{mem: unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)}, nil
	}
	fd, err := unix.MemfdCreate("culvert-nvme-bar0", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	r := &registers{file: os.NewFile(uintptr(fd), "bar0")}
	if err = r.file.Truncate(int64(size)); err == nil {
		r.own, err = dev.MapFile(r.file, 0, int(size), unix.PROT_READ|unix.PROT_WRITE)
	}
	if err != nil {
		_ = r.file.Close() // the first error is reported
		return nil, err
	}
	r.mem = dev.Bytes(r.own)
	return r, nil
}

func (r *registers) close() error {
	if r.file == nil {
		return nil
	}
	if err := r.own.Unmap(); err != nil {
		return err
	}
	return r.file.Close()
}

func (r *registers) load32(off uint64) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.mem[off])))
}

func (r *registers) store32(off uint64, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&r.mem[off])), v)
}

func (r *registers) or32(off uint64, v uint32) {
	atomic.OrUint32((*uint32)(unsafe.Pointer(&r.mem[off])), v)
}

func (r *registers) load64(off uint64) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.mem[off])))
}

func (r *registers) store64(off uint64, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.mem[off])), v)
}

// has reports whether an access is inside and aligned.
func (r *registers) has(off, size uint64) bool {
	return off%size == 0 && off <= uint64(len(r.mem))-size
}

// mapping maps the first n bytes for a program.
func (r *registers) mapping(n, prot int) (dev.Mapping, error) {
	if r.file != nil {
		return dev.MapFile(r.file, 0, n, prot)
	}
	return heapMapping(r.mem[:n]), nil
}

// A heapMapping replaces a mapping, for the race detector.
type heapMapping []byte

func (m heapMapping) Addr() uintptr { return uintptr(unsafe.Pointer(&m[0])) }
func (m heapMapping) Len() int      { return len(m) }
func (m heapMapping) Unmap() error  { return nil }
