package cmem

import (
	"os"
	"structs"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A direction is a system call that copies between the memory of two processes, here
// twice this one. Memory of the program is the caller's side of it, which the kernel
// accesses as in a read or a write; on the other side, memory that a driver has mapped,
// such as that of cudaHostAlloc, would be refused.
type direction uintptr

const (
	load  direction = unix.SYS_PROCESS_VM_WRITEV
	store direction = unix.SYS_PROCESS_VM_READV
)

// theirs and ours are struct iovec. The first is no pointer of Go: the garbage collector
// must not follow it.
type (
	theirs struct {
		_    structs.HostLayout
		base Ptr
		n    uintptr
	}
	ours struct {
		_    structs.HostLayout
		base unsafe.Pointer
		n    uintptr
	}
)

var pid = uintptr(os.Getpid()) // a forked child does not get here

// refused is set where the system calls are not allowed, as by some sandboxes.
var refused atomic.Bool

// access copies n bytes between the program's memory at p and Go's at v, which the
// caller keeps alive. It panics if not all of them are there.
func access(d direction, p Ptr, v unsafe.Pointer, n uintptr) {
	if n == 0 {
		return
	}
	if refused.Load() || !transfer(d, p, v, n) {
		direct(d, p, v, n)
	}
}

// transfer has the kernel copy. It returns false where that is not allowed.
func transfer(d direction, p Ptr, v unsafe.Pointer, n uintptr) bool {
	local := theirs{base: p, n: n}
	done, ok := copyBetween(d, &local, 1, v, n)
	if ok && done < n {
		panic(wild{p + Ptr(done)})
	}
	return ok
}

// copyBetween copies between several places of the program and n bytes of Go's, until
// the first place that is not there.
func copyBetween(d direction, local *theirs, places uintptr, v unsafe.Pointer, n uintptr) (done uintptr, ok bool) {
	remote := ours{base: v, n: n}
	for {
		done, _, err := unix.Syscall6(uintptr(d), pid, uintptr(unsafe.Pointer(local)), places, uintptr(unsafe.Pointer(&remote)), 1, 0)
		switch err {
		case unix.ENOSYS, unix.EPERM, unix.ESRCH:
			refused.Store(true)
			return 0, false
		case unix.EINTR:
			continue
		case 0:
			return done, true
		}
		return 0, true
	}
}

// loadWords has the kernel read the words at several places. It returns false if it did
// not read all.
func loadWords(words []uint64, from []Ptr) bool {
	var local [maxWords]theirs
	for i, p := range from {
		local[i] = theirs{base: p, n: wordSize}
	}
	n := uintptr(len(from)) * wordSize
	done, ok := copyBetween(load, &local[0], uintptr(len(from)), unsafe.Pointer(&words[0]), n)
	return ok && done == n
}

// An exchange is the memory of exchangeWords. It is not on a stack, which could move.
type exchange struct {
	local  [maxWords + 1]theirs
	remote [2]theirs
	words  [maxWords]uint64
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchangeWords has the kernel read the words at several places and write the last one
// back: it copies place by place. It returns false if it did not do all, as for memory
// that a driver has mapped, which the kernel does not write on the other side.
func exchangeWords(words *[maxWords]uint64, from []Ptr) bool {
	if len(from) == 0 || len(from) > maxWords {
		return false
	}
	x := exchanges.Get().(*exchange)
	defer exchanges.Put(x)
	n := uintptr(len(from)) * wordSize
	for i, p := range from {
		x.local[i] = theirs{base: p, n: wordSize}
	}
	last := len(from) - 1
	x.local[last+1] = theirs{base: PtrTo(&x.words[last]), n: wordSize}
	x.remote = [2]theirs{{base: PtrTo(&x.words[0]), n: n}, {base: from[last], n: wordSize}}
	done, _, err := unix.Syscall6(uintptr(load), pid, uintptr(unsafe.Pointer(&x.local)), uintptr(last+2), uintptr(unsafe.Pointer(&x.remote)), 2, 0)
	*words = x.words
	return err == 0 && done == n+wordSize
}

// direct copies by the CPU. A fault is a panic, unless the program handles it. It is
// not inlined: with constant addresses the compiler of Go 1.26 crashes.
//
//go:noinline
func direct(d direction, p Ptr, v unsafe.Pointer, n uintptr) {
	from, to := p.pointer(), v
	if d == store {
		from, to = to, from
	}
	copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(from), n))
}
