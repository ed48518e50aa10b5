package nvfs

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/p2p/user"
)

// A fencePage is a page of the program in which the module publishes what a
// return value cannot say. The zero value is none. It is kept as a number: the
// garbage collector must not take what a program has passed for a pointer.
type fencePage struct{ addr uint64 }

// newFencePage makes sure that a page can be written.
func newFencePage(addr uint64) (fencePage, error) {
	if addr == 0 || addr%abi.MetaSize != 0 {
		return fencePage{}, syscall.EINVAL
	}
	// The kernel says whether the page is there and writable, and changes
	// nothing in it.
	err := unix.Madvise(unsafe.Slice((*byte)(pointer(addr)), abi.MetaSize), unix.MADV_POPULATE_WRITE)
	if err != nil {
		return fencePage{}, syscall.EFAULT
	}
	return fencePage{addr}, nil
}

// pointer is an address that a program has passed. Reading it through memory
// keeps vet from taking this for arithmetic on a pointer.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// touch runs fn, which accesses the page: it may be gone.
func (f fencePage) touch(fn func()) (ok bool) {
	if f.addr == 0 {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = recover() == nil }()
	fn()
	return true
}

func (f fencePage) word(off uintptr) *uint64 { return (*uint64)(unsafe.Add(pointer(f.addr), off)) }

// complete publishes the end of an asynchronous transfer: the result before the
// value that says that it is there.
func (f fencePage) complete(value uint64, result int64) {
	f.touch(func() {
		atomic.StoreUint64(f.word(abi.MetaResult), uint64(result))
		atomic.StoreUint64(f.word(abi.MetaFence), value)
	})
}

// sparse publishes the holes that a READ has met.
func (f fencePage) sparse(s *abi.Sparse) {
	if f.addr == 0 {
		return
	}
	room := rooms.Get().(*[512]byte)
	defer rooms.Put(room)
	_, _ = user.Write(unsafe.Add(pointer(f.addr), abi.MetaState), abi.AppendSparse(room[:0], s)) // a page that is gone has no reader
}

// rooms are for what is published: on xfs every READ has something to say.
var rooms = sync.Pool{New: func() any { return new([512]byte) }}

// died says that the GPU memory is gone.
func (f fencePage) died() {
	f.touch(func() { atomic.StoreUint32((*uint32)(unsafe.Add(pointer(f.addr), abi.MetaState)), abi.META_DIED) })
}
