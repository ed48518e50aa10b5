package uring

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Done is a completed read.
type Done struct {
	User uint64 // as given to Read
	Res  int32  // bytes, or a negated errno
}

// maxLen is the most that one read moves in Linux.
const maxLen = 0x7ffff000

// Read queues a read into p, which must not be used until the completion is reaped.
// A full ring returns ErrFull.
func (r *Ring) Read(fd int, p []byte, off int64, user uint64) error {
	last := len(r.idle) - 1
	if last < 0 {
		return ErrFull
	}
	i := r.idle[last]
	r.idle = r.idle[:last]
	mem := unsafe.Pointer(unsafe.SliceData(p))
	r.reads[i] = read{mem, user}
	r.sqes[(*r.sqTail+r.queued)&r.sqMask] = sqe{
		Opcode: IORING_OP_READ, Fd: int32(fd), Off: uint64(off), Addr: uint64(uintptr(mem)), Len: uint32(min(len(p), maxLen)), UserData: uint64(i),
	}
	r.queued++
	return nil
}

// Submit gives the queued reads to the kernel and waits until at least wait
// completions can be reaped, or all if fewer are in flight. After an error the reads
// stay queued.
func (r *Ring) Submit(wait int) error {
	wait = min(wait, r.Busy())
	store(r.sqTail, *r.sqTail+r.queued)
	r.queued = 0
	for {
		submit := *r.sqTail - load(r.sqHead)
		ready := r.Ready()
		if submit == 0 && ready >= wait {
			return nil
		}
		var flags uintptr
		if wait > 0 {
			flags = IORING_ENTER_GETEVENTS
		}
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(wait), flags, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN || errno == unix.EBUSY:
			if ready > 0 {
				return nil // reaping frees memory; the next call submits the rest
			}
			return fmt.Errorf("io_uring_enter: %w: the kernel has no memory for more reads", errno)
		case errno != 0:
			return os.NewSyscallError("io_uring_enter", errno)
		}
		if *r.sqTail == load(r.sqHead) && r.Ready() >= wait {
			return nil
		}
	}
}

// Ready is how many completions can be reaped now. It makes no system call.
func (r *Ring) Ready() int { return int(load(r.cqTail) - *r.cqHead) }

// Reap returns how many completions it has put into dst, in no particular order. It
// makes no system call.
func (r *Ring) Reap(dst []Done) int {
	head, tail := *r.cqHead, load(r.cqTail)
	n := 0
	for ; n < len(dst) && head != tail; n++ {
		c := r.cqes[head&r.cqMask]
		f := &r.reads[c.UserData]
		dst[n] = Done{User: f.user, Res: c.Res}
		*f = read{}
		r.idle = append(r.idle, uint32(c.UserData))
		head++
	}
	store(r.cqHead, head)
	return n
}
