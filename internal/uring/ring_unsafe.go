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

// ErrUnavailable says that the kernel, a seccomp profile or a sysctl refuses
// io_uring. The errno that it came with is wrapped beside it.
var ErrUnavailable = errors.New("io_uring is not available here")

// ErrFull is the answer to an operation for which the ring has no room: reap
// completions first.
var ErrFull = errors.New("io_uring: the ring is full")

// Config says what kind of ring to make.
type Config struct {
	// Entries is how many operations can be under way; the kernel rounds it up
	// to a power of two. 0 is 64.
	Entries int
	// Single makes the ring the calling thread's own: SINGLE_ISSUER and
	// DEFER_TASKRUN, which save interrupts. The caller has locked its goroutine
	// to the thread, for the life of the ring. Kernels before 6.1 do not know
	// the flags, and give an ordinary ring.
	Single bool
}

// A Ring is an io_uring. It is not safe for concurrent use.
type Ring struct {
	fd     int
	single bool

	sqHead, sqTail *uint32 // the kernel moves head, we move tail
	sqMask         uint32
	sqes           []sqe
	queued         uint32 // entries behind the published tail

	cqHead, cqTail *uint32 // we move head, the kernel moves tail
	cqMask         uint32
	cqes           []cqe

	flights []flight // by user_data
	idle    []uint32 // free indices into flights

	maps [][]byte
}

// A flight is an operation under way. Holding the pointer keeps the memory
// alive, and keeps the compiler from putting it on a stack, which moves.
type flight struct {
	mem  unsafe.Pointer
	user uint64
}

// New makes a ring.
func New(cfg Config) (*Ring, error) {
	entries := uint32(cfg.Entries)
	if cfg.Entries <= 0 {
		entries = 64
	}
	var p params
	fd, err := setup(entries, cfg.Single, &p)
	if err != nil {
		return nil, err
	}
	r := &Ring{fd: fd, single: p.Flags&IORING_SETUP_DEFER_TASKRUN != 0}
	if err := r.mmap(&p); err != nil {
		r.Close()
		return nil, fmt.Errorf("io_uring: map the queues: %w", err)
	}
	r.flights = make([]flight, p.SqEntries)
	r.idle = make([]uint32, p.SqEntries)
	for i := range r.idle {
		r.idle[i] = uint32(i)
	}
	return r, nil
}

// setup tries the best flags first. An old kernel answers EINVAL to a flag that
// it does not know, so that each step down is one release line back.
func setup(entries uint32, single bool, p *params) (int, error) {
	const base = IORING_SETUP_CLAMP
	tries := []uint32{base | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN, base | IORING_SETUP_SUBMIT_ALL, base}
	if single {
		own := uint32(base | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)
		tries = append([]uint32{own}, tries...)
	}
	var errno unix.Errno
	for _, flags := range tries {
		*p = params{Flags: flags}
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

// needFeatures turns the first kernels away: those that can lose completions,
// map the queues in another way or lack plain reads and writes.
func needFeatures(fd int, p *params) error {
	const need = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS
	if p.Features&need == need {
		return nil
	}
	unix.Close(fd)
	return fmt.Errorf("%w: the kernel's io_uring is older than Linux 5.6 (features %#x)", ErrUnavailable, p.Features)
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
	// Entry i of the indirection array is sqe i for good.
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

// Single reports whether the ring is bound to the thread that made it.
func (r *Ring) Single() bool { return r.single }

// Entries is how many operations can be under way.
func (r *Ring) Entries() int { return len(r.flights) }

// Busy is how many operations are queued or under way.
func (r *Ring) Busy() int { return len(r.flights) - len(r.idle) }

// Register gives the kernel memory that ReadFixed and WriteFixed then use by
// index without pinning it for every operation. It counts against
// RLIMIT_MEMLOCK where the user is not privileged.
func (r *Ring) Register(bufs [][]byte) error {
	iov := make([]unix.Iovec, len(bufs))
	for i, b := range bufs {
		if len(b) == 0 {
			return fmt.Errorf("io_uring: register buffer %d: %w: it is empty", i, unix.EINVAL)
		}
		iov[i].Base = &b[0]
		iov[i].SetLen(len(b))
	}
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), IORING_REGISTER_BUFFERS,
		uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("io_uring: register %d buffers: %w (try: ulimit -l unlimited)", len(bufs), errno)
	}
	return nil
}

// Close takes the ring down. Operations under way are waited for, since their
// memory is the caller's again afterwards.
func (r *Ring) Close() error {
	if r.fd < 0 {
		return os.ErrClosed
	}
	err := r.settle()
	for _, m := range r.maps {
		err = errors.Join(err, os.NewSyscallError("munmap", unix.Munmap(m)))
	}
	err = errors.Join(err, os.NewSyscallError("close", unix.Close(r.fd)))
	*r = Ring{fd: -1}
	return err
}

func (r *Ring) settle() error {
	var done [16]Done
	for r.Busy() > 0 {
		if r.Reap(done[:]) > 0 {
			continue
		}
		err := r.Submit(1)
		switch {
		case err == nil:
		case r.single || r.begun() == 0:
			return fmt.Errorf("io_uring: %d operations are not done: %w", r.Busy(), err)
		default:
			// The kernel has memory to write to, and tells when it has done so
			// also without being asked.
			pause(time.Millisecond)
		}
	}
	return nil
}

// pause is replaced by tests, which answer in it.
var pause = time.Sleep

// begun is how many operations the kernel has taken and not answered.
func (r *Ring) begun() int { return r.Busy() - int(*r.sqTail+r.queued-load(r.sqHead)) }

func load(p *uint32) uint32     { return atomic.LoadUint32(p) }
func store(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
