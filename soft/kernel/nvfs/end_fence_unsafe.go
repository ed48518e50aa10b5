package nvfs

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/user"
)

// A fencePage is a page of the process in which the module publishes more than a
// return value. The zero value is none. It is kept as a number, so that the garbage
// collector does not take an address of the process for a pointer.
type fencePage struct{ addr uint64 }

// newFencePage checks that a page can be written.
func newFencePage(addr uint64) (fencePage, error) {
	if addr == 0 || addr%abi.MetaSize != 0 {
		return fencePage{}, syscall.EINVAL
	}
	// The kernel checks that the page is mapped and writable, and does not change it.
	err := unix.Madvise(unsafe.Slice((*byte)(pointer(addr)), abi.MetaSize), unix.MADV_POPULATE_WRITE)
	if err != nil {
		return fencePage{}, syscall.EFAULT
	}
	return fencePage{addr}, nil
}

// pointer converts an address that the process passed. Reading it through memory
// keeps vet from taking this for pointer arithmetic.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// touch runs fn, which accesses the page. An unmapped page has no reader: fn ends there.
func (f fencePage) touch(fn func()) {
	if f.addr == 0 {
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { _ = recover() }()
	fn()
}

func (f fencePage) word(off uintptr) *uint64 { return (*uint64)(unsafe.Add(pointer(f.addr), off)) }

// complete publishes the end of an asynchronous transfer: the result, then the fence
// value.
func (f fencePage) complete(value uint64, result int64) {
	f.touch(func() {
		atomic.StoreUint64(f.word(abi.MetaResult), uint64(result))
		atomic.StoreUint64(f.word(abi.MetaFence), value)
	})
}

// sparse publishes the holes of a READ.
func (f fencePage) sparse(s *abi.Sparse) {
	if f.addr == 0 {
		return
	}
	room := rooms.Get().(*[512]byte)
	defer rooms.Put(room)
	b := abi.AppendSparse(room[:0], s)
	// The module leaves the word behind the state alone. An unmapped page has no reader.
	_, _ = user.Write(unsafe.Add(pointer(f.addr), abi.MetaMagic), b[abi.MetaMagic-abi.MetaState:])
	_, _ = user.Write(unsafe.Add(pointer(f.addr), abi.MetaState), b[:4])
}

// rooms are reusable buffers: on XFS every READ publishes something.
var rooms = sync.Pool{New: func() any { return new([512]byte) }}

// died publishes that the GPU memory was freed.
func (f fencePage) died() {
	f.touch(func() { atomic.StoreUint32((*uint32)(unsafe.Add(pointer(f.addr), abi.MetaState)), abi.META_DIED) })
}
