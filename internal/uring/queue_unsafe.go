package uring

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Done is a completed operation.
type Done struct {
	User uint64 // as given with the operation
	Res  int32  // bytes, or a negated errno
}

// Result is the count, or the errno as an error.
func (d Done) Result() (int, error) {
	if d.Res < 0 {
		return 0, unix.Errno(-d.Res)
	}
	return int(d.Res), nil
}

// maxLen is the most that one read or write moves in Linux.
const maxLen = 0x7ffff000

// Read queues a read into p. p is the ring's until the completion is reaped.
func (r *Ring) Read(fd int, p []byte, off int64, user uint64) error {
	return r.bytes(IORING_OP_READ, fd, p, off, 0, user)
}

// Write queues a write of p.
func (r *Ring) Write(fd int, p []byte, off int64, user uint64) error {
	return r.bytes(IORING_OP_WRITE, fd, p, off, 0, user)
}

// ReadFixed queues a read into a part of registered buffer buf.
func (r *Ring) ReadFixed(fd int, p []byte, off int64, buf int, user uint64) error {
	return r.bytes(IORING_OP_READ_FIXED, fd, p, off, buf, user)
}

// WriteFixed queues a write of a part of registered buffer buf.
func (r *Ring) WriteFixed(fd int, p []byte, off int64, buf int, user uint64) error {
	return r.bytes(IORING_OP_WRITE_FIXED, fd, p, off, buf, user)
}

// Readv queues a read into the pieces of iov, which stay in place until the
// completion is reaped.
func (r *Ring) Readv(fd int, iov []unix.Iovec, off int64, user uint64) error {
	return r.vector(IORING_OP_READV, fd, iov, off, user)
}

// Writev queues a write of the pieces of iov.
func (r *Ring) Writev(fd int, iov []unix.Iovec, off int64, user uint64) error {
	return r.vector(IORING_OP_WRITEV, fd, iov, off, user)
}

// Fdatasync queues a flush of the file. It is not ordered after writes that
// have not completed.
func (r *Ring) Fdatasync(fd int, user uint64) error {
	e, err := r.next(nil, user)
	if err != nil {
		return err
	}
	e.Opcode, e.Fd, e.RwFlags = IORING_OP_FSYNC, int32(fd), IORING_FSYNC_DATASYNC
	return nil
}

func (r *Ring) bytes(op uint8, fd int, p []byte, off int64, buf int, user uint64) error {
	if len(p) > maxLen {
		p = p[:maxLen]
	}
	mem := unsafe.Pointer(unsafe.SliceData(p))
	e, err := r.next(mem, user)
	if err != nil {
		return err
	}
	e.Opcode, e.Fd, e.Off, e.BufIndex = op, int32(fd), uint64(off), uint16(buf)
	e.Addr, e.Len = uint64(uintptr(mem)), uint32(len(p))
	return nil
}

func (r *Ring) vector(op uint8, fd int, iov []unix.Iovec, off int64, user uint64) error {
	mem := unsafe.Pointer(unsafe.SliceData(iov))
	e, err := r.next(mem, user)
	if err != nil {
		return err
	}
	e.Opcode, e.Fd, e.Off = op, int32(fd), uint64(off)
	e.Addr, e.Len = uint64(uintptr(mem)), uint32(len(iov))
	return nil
}

// next takes a cleared entry. There are as many flights as entries, and the
// completion queue is twice that long, so that neither queue can overflow.
func (r *Ring) next(mem unsafe.Pointer, user uint64) (*sqe, error) {
	last := len(r.idle) - 1
	if last < 0 {
		return nil, ErrFull
	}
	i := r.idle[last]
	r.idle = r.idle[:last]
	r.flights[i] = flight{mem, user}
	e := &r.sqes[(*r.sqTail+r.queued)&r.sqMask]
	*e = sqe{UserData: uint64(i)}
	r.queued++
	return e, nil
}

// Submit hands the queued operations to the kernel and waits until at least
// wait completions can be reaped (no more than are under way, or it would
// never return). A refusal leaves the operations queued.
func (r *Ring) Submit(wait int) error {
	wait = min(wait, r.Busy())
	store(r.sqTail, *r.sqTail+r.queued)
	r.queued = 0
	for {
		submit := *r.sqTail - load(r.sqHead)
		ready := int(load(r.cqTail) - *r.cqHead)
		if submit == 0 && ready >= wait && !r.single {
			return nil
		}
		var flags uintptr
		if wait > 0 || r.single {
			flags = IORING_ENTER_GETEVENTS
		}
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(wait), flags, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN || errno == unix.EBUSY:
			if ready > 0 {
				return nil // reaping makes room; the rest goes with the next call
			}
			return fmt.Errorf("io_uring_enter: %w: the kernel has no memory for more operations", errno)
		case errno != 0:
			return os.NewSyscallError("io_uring_enter", errno)
		}
		if *r.sqTail == load(r.sqHead) && int(load(r.cqTail)-*r.cqHead) >= wait {
			return nil
		}
	}
}

// Reap takes completions that are there, in no order, and returns how many. It
// makes no system call.
func (r *Ring) Reap(dst []Done) int {
	head, tail := *r.cqHead, load(r.cqTail)
	n := 0
	for ; n < len(dst) && head != tail; n++ {
		c := r.cqes[head&r.cqMask]
		f := &r.flights[c.UserData]
		dst[n] = Done{User: f.user, Res: c.Res}
		*f = flight{}
		r.idle = append(r.idle, uint32(c.UserData))
		head++
	}
	store(r.cqHead, head)
	return n
}
