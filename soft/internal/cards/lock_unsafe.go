package cards

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The lock is a word: 0, or the number of its owner (a process's place plus 1, or
// attaching), with the bit waited if others may wait for it.
const (
	attaching = maxProcesses + 1
	waited    = 1 << 31
)

// patience is how long a process waits before it looks whether the owner lives.
const patience = 10 * time.Millisecond

// lock takes the lock for an owner, of which there is one at a time: finding its own
// number, it follows one that was killed.
func (c *Cards) lock(me uint32) {
	word, want := &c.head.Lock, me
	for !atomic.CompareAndSwapUint32(word, 0, want) {
		v := atomic.LoadUint32(word)
		owner := v &^ waited
		switch {
		case v == 0:
		case owner == me || v&waited != 0 && !wait(word, v) && !c.owns(owner):
			if atomic.CompareAndSwapUint32(word, v, me|waited) {
				c.reap()
				c.recount()
				return
			}
		default:
			want = me | waited // this process cannot tell whether others wait
			atomic.CompareAndSwapUint32(word, v, v|waited)
		}
	}
}

// owns reports whether the owner of the lock lives.
func (c *Cards) owns(owner uint32) bool {
	switch {
	case owner == attaching:
		return c.head.Attaching.process().lives()
	case owner > maxProcesses:
		return false
	}
	return c.places[owner-1].process().lives()
}

func (c *Cards) unlock() {
	word := &c.head.Lock
	if atomic.SwapUint32(word, 0)&waited != 0 {
		const wake = 1
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wake, 1, 0, 0, 0)
	}
}

// wait waits while the word has a value, at most as long as patience. It reports whether
// it is worth looking at the word again.
func wait(word *uint32, v uint32) bool {
	const sleep = 0
	limit := unix.NsecToTimespec(patience.Nanoseconds())
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), sleep, uintptr(v), uintptr(unsafe.Pointer(&limit)), 0, 0)
	return !errors.Is(errno, unix.ETIMEDOUT)
}
