package uring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnavailable means that the kernel, a seccomp profile or a sysctl refuses
// io_uring. It wraps the errno.
var ErrUnavailable = errors.New("io_uring is not available")

// ErrFull means that the ring has no room for a read: reap completions first.
var ErrFull = errors.New("io_uring: the ring is full")

// A Ring is an io_uring. It is not safe for concurrent use.
type Ring struct {
	fd int

	sqHead, sqTail *uint32 // the kernel moves head, we move tail
	sqMask         uint32
	sqes           []sqe
	queued         uint32 // entries after the published tail

	cqHead, cqTail *uint32 // we move head, the kernel moves tail
	cqMask         uint32
	cqes           []cqe

	// There are as many reads as submission entries, and the completion queue is
	// twice as long, so that neither queue can overflow.
	reads []read   // by user_data
	idle  []uint32 // free indices into reads

	maps [][]byte
}

// A read is in flight. The pointer keeps the memory alive and off the stack, which
// may move.
type read struct {
	mem  unsafe.Pointer
	user uint64
}

// New makes a ring for at least so many reads in flight; the kernel rounds up to a
// power of two.
func New(entries int) (*Ring, error) {
	return newRing(entries, []uint32{IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN, IORING_SETUP_SUBMIT_ALL, 0})
}

// NewPolled is New for a caller that polls with Ready: a completion interrupts its thread,
// and does not wait until that enters the kernel.
func NewPolled(entries int) (*Ring, error) {
	return newRing(entries, []uint32{IORING_SETUP_SUBMIT_ALL, 0})
}

// newRing tries the flags in turn.
func newRing(entries int, flags []uint32) (*Ring, error) {
	var p params
	fd, err := setup(uint32(entries), flags, &p)
	if err != nil {
		return nil, err
	}
	r := &Ring{fd: fd}
	if err := r.mmap(&p); err != nil {
		r.Close()
		return nil, fmt.Errorf("io_uring: map the queues: %w", err)
	}
	r.reads = make([]read, p.SqEntries)
	r.idle = make([]uint32, p.SqEntries)
	for i := range r.idle {
		r.idle[i] = uint32(i)
	}
	return r, nil
}

// setup tries the first flags first. A kernel returns EINVAL for a flag that it does
// not know, so that each step is for an older kernel.
func setup(entries uint32, flags []uint32, p *params) (int, error) {
	var errno unix.Errno
	for _, f := range flags {
		*p = params{Flags: IORING_SETUP_CLAMP | f}
		var fd uintptr
		fd, _, errno = unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
		if errno == 0 {
			return int(fd), needFeatures(int(fd), p)
		}
		if errno != unix.EINVAL {
			break
		}
	}
	switch errno {
	case unix.ENOSYS, unix.EPERM, unix.EACCES, unix.EINVAL:
		return -1, fmt.Errorf("%w: io_uring_setup: %w (kernel before 5.6, seccomp, or kernel.io_uring_disabled)", ErrUnavailable, errno)
	}
	return -1, os.NewSyscallError("io_uring_setup", errno)
}

// needFeatures rejects kernels that can lose completions, map the queues in another
// way or lack plain reads.
func needFeatures(fd int, p *params) error {
	const need = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS
	if p.Features&need == need {
		return nil
	}
	unix.Close(fd)
	return fmt.Errorf("%w: kernel before 5.6 (features %#x)", ErrUnavailable, p.Features)
}

func (r *Ring) mmap(p *params) error {
	sqLen := uint64(p.SqOff.Array) + uint64(p.SqEntries)*4
	cqLen := uint64(p.CqOff.Cqes) + uint64(p.CqEntries)*uint64(unsafe.Sizeof(cqe{}))
	rings, err := r.mapQueue(IORING_OFF_SQ_RING, max(sqLen, cqLen))
	if err != nil {
		return err
	}
	entries, err := r.mapQueue(IORING_OFF_SQES, uint64(p.SqEntries)*uint64(unsafe.Sizeof(sqe{})))
	if err != nil {
		return err
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&rings[off])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.SqOff.Head), word(p.SqOff.Tail), *word(p.SqOff.RingMask)
	r.cqHead, r.cqTail, r.cqMask = word(p.CqOff.Head), word(p.CqOff.Tail), *word(p.CqOff.RingMask)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&entries[0])), p.SqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&rings[p.CqOff.Cqes])), p.CqEntries)
	// Entry i of the indirection array is always sqe i.
	for i, array := uint32(0), unsafe.Slice(word(p.SqOff.Array), p.SqEntries); i < p.SqEntries; i++ {
		array[i] = i
	}
	return nil
}

func (r *Ring) mapQueue(off int64, n uint64) ([]byte, error) {
	m, err := unix.Mmap(r.fd, off, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err == nil {
		r.maps = append(r.maps, m)
	}
	return m, err
}

// Entries is how many reads can be in flight.
func (r *Ring) Entries() int { return len(r.reads) }

// Busy is how many reads are queued or in flight.
func (r *Ring) Busy() int { return len(r.reads) - len(r.idle) }

// Close waits for all reads, whose memory the caller may use afterwards, and frees
// the ring. A second Close returns os.ErrClosed.
func (r *Ring) Close() error {
	if r.fd < 0 {
		return os.ErrClosed
	}
	err := r.drain()
	for _, m := range r.maps {
		err = errors.Join(err, os.NewSyscallError("munmap", unix.Munmap(m)))
	}
	err = errors.Join(err, os.NewSyscallError("close", unix.Close(r.fd)))
	*r = Ring{fd: -1}
	return err
}

func (r *Ring) drain() error {
	var done [16]Done
	for r.Busy() > 0 {
		if r.Reap(done[:]) > 0 {
			continue
		}
		err := r.Submit(1)
		switch {
		case err == nil:
		case r.begun() == 0:
			return fmt.Errorf("io_uring: %d reads are not done: %w", r.Busy(), err)
		default:
			// The kernel will write to the memory, and reports that without being
			// asked.
			pause(time.Millisecond)
		}
	}
	return nil
}

// pause is replaced in tests.
var pause = time.Sleep

// begun is how many reads the kernel has accepted and not completed.
func (r *Ring) begun() int { return r.Busy() - int(*r.sqTail+r.queued-load(r.sqHead)) }

func load(p *uint32) uint32     { return atomic.LoadUint32(p) }
func store(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
