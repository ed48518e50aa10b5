package nvfs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
)

// Read reads n bytes from off of a file to devOff of the buffer. All three must be
// multiples of 4096. It reads fewer bytes only at the end of the file. On an error
// the returned number of bytes is valid; the rest is undefined.
func (b *Buffer) Read(f *File, off int64, n, devOff uint64) (int64, error) {
	return b.transfer("READ", f, off, n, devOff, b.readChunk)
}

// ReadOnce is Read for a file that no other process writes. A hole that the file does not have
// is [ErrNotDirect] at once: of a mirror with one drive without hooks, another try may
// meet the other drive.
func (b *Buffer) ReadOnce(f *File, off int64, n, devOff uint64) (int64, error) {
	return b.transfer("READ", f, off, n, devOff, b.readOnce)
}

// Write writes n bytes from devOff of the buffer to off of a file. If it fails with
// [ErrNotDirect] after it has begun, the range in the file is undefined.
func (b *Buffer) Write(f *File, off int64, n, devOff uint64) (int64, error) {
	return b.transfer("WRITE", f, off, n, devOff, b.writeChunk)
}

// WriteScrubbed is Write with random bytes in the shadow buffer: a drive without hooks stores
// them. Without that it may store what is to be written: the shadow buffer has zeros at first,
// and later what a READ of such a drive has left there.
func (b *Buffer) WriteScrubbed(f *File, off int64, n, devOff uint64) (int64, error) {
	return b.transfer("WRITE", f, off, n, devOff, func(f *File, p chunk) (int64, error) {
		b.scrub(p)
		return b.writeChunk(f, p)
	})
}

// scrub fills the part of the shadow buffer that a chunk uses.
func (b *Buffer) scrub(p chunk) {
	in := (b.cfg.Addr + p.devOff) % abi.GPU_PAGE_SIZE
	s := dev.Bytes(b.shadow)[in:]
	rand.Read(s[:min(p.n, uint64(len(s)))])
}

func (b *Buffer) transfer(op string, f *File, off int64, n, devOff uint64, do func(*File, chunk) (int64, error)) (int64, error) {
	done, err := b.chunks(f, off, n, devOff, do)
	if err != nil {
		err = fmt.Errorf("%s of %d bytes: %w", op, n, err)
	}
	return done, err
}

// A chunk is a transfer by one request of the module.
type chunk struct {
	off    int64
	n      uint64
	devOff uint64
}

// chunks splits a transfer into chunks: one that begins inside a GPU page ends with
// that page.
func (b *Buffer) chunks(f *File, off int64, n, devOff uint64, do func(*File, chunk) (int64, error)) (done int64, err error) {
	if off < 0 || (uint64(off)|n|devOff)%abi.BLOCK_SIZE != 0 {
		return 0, fmt.Errorf("offset %d, size %d, offset in the buffer %d: %w", off, n, devOff, ErrAlign)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shadow == nil {
		return 0, fs.ErrClosed
	}
	if devOff > b.cfg.Size || n > b.cfg.Size-devOff {
		return 0, fmt.Errorf("%d bytes at offset %d exceed the buffer of %d bytes", n, devOff, b.cfg.Size)
	}
	for uint64(done) < n {
		p := chunk{off + done, n - uint64(done), devOff + uint64(done)}
		if in := (b.cfg.Addr + p.devOff) % abi.GPU_PAGE_SIZE; in != 0 {
			p.n = min(p.n, abi.GPU_PAGE_SIZE-in)
		}
		k, err := do(f, p)
		if done += k; err != nil {
			return done, b.explain(err)
		}
		if k == 0 || k%abi.BLOCK_SIZE != 0 {
			break // end of file
		}
	}
	return done, nil
}

// explain adds ErrRevoked to an error if the memory was freed. The module ends such a
// transfer with EIO or EBUSY first, and writes the state afterwards.
func (b *Buffer) explain(err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBUSY) {
		for i := 0; i < 50 && !b.died(); i++ {
			sleep(time.Millisecond)
		}
	}
	if b.died() && !errors.Is(err, ErrRevoked) {
		return fmt.Errorf("%w: %w", ErrRevoked, err)
	}
	return err
}

func (b *Buffer) request(f *File, p chunk, req uintptr) (int64, error) {
	a := abi.IOArgs{
		CPUVAddr: uint64(b.shadow.Addr()), Offset: p.off, Size: p.n, DevPtrOff: p.devOff,
		Inum: f.ino, Majdev: f.major, Mindev: f.minor, FD: int32(f.fd), Bits: abi.BitSync,
	}
	clear(b.arg[:])
	a.Encode(b.arg[:])
	n, err := b.call(req)
	if err == nil && (n < 0 || uint64(n) > p.n) {
		return 0, fmt.Errorf("module moved %d bytes of %d", n, p.n)
	}
	return n, err
}

var sleep = time.Sleep

// firstReads is held by the first READ of a buffer. nvidia-fs maps the buffer then, and
// clears current->plug while it does: Linux 6.12 can panic if the task is rescheduled, as
// it often is if two buffers are at it.
var firstReads sync.Mutex

func (b *Buffer) requestRead(f *File, p chunk) (int64, error) {
	if !b.wasRead {
		firstReads.Lock()
		defer firstReads.Unlock()
	}
	n, err := b.request(f, p, abi.NVFS_IOCTL_READ)
	b.wasRead = b.wasRead || err == nil // one that failed may have failed before it mapped
	return n, err
}

// readChunk reads. A hole that the file does not have may have been filled meanwhile, so
// it reads once more.
func (b *Buffer) readChunk(f *File, p chunk) (int64, error) {
	n, err := b.readOnce(f, p)
	if errors.Is(err, ErrNotDirect) {
		n, err = b.readOnce(f, p)
	}
	return n, err
}

// readOnce reads and checks the end-fence page.
func (b *Buffer) readOnce(f *File, p chunk) (n int64, err error) {
	b.clean()
	if n, err = b.requestRead(f, p); err != nil {
		return 0, err
	}
	if b.died() {
		return 0, ErrRevoked
	}
	if err := abi.ParseSparse(b.meta, &b.sparse); err != nil {
		return 0, err
	}
	filled, err := b.fillHoles(f, p, n)
	if err == nil && !filled {
		err = fmt.Errorf("%w: it reported data as a hole", ErrNotDirect)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// fillHoles zeroes the holes in the page, if the file has them.
func (b *Buffer) fillHoles(f *File, p chunk, n int64) (ok bool, err error) {
	for _, h := range b.sparse.Holes {
		off := b.sparse.Offset + int64(h.Start)*abi.BLOCK_SIZE
		end := min(off+int64(h.Blocks)*abi.BLOCK_SIZE, p.off+n)
		if off < p.off || off >= end {
			return false, fmt.Errorf("end-fence page lists a hole at %d that was not read", off)
		}
		if hole, err := f.hole(off, end-off); !hole || err != nil {
			return false, err
		}
		if err := b.cfg.Zero(b.cfg.Addr+p.devOff+uint64(off-p.off), uint64(end-off)); err != nil {
			return false, fmt.Errorf("zero a hole: %w", err)
		}
		b.zeroed += end - off
	}
	return true, nil
}

// Zeroed returns the bytes of holes so far: memory that was cleared instead of read
// to.
func (b *Buffer) Zeroed() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.zeroed
}

// writeChunk writes, once a driver has registered: others would write the shadow
// buffer.
func (b *Buffer) writeChunk(f *File, p chunk) (int64, error) {
	if !b.hooked {
		if err := b.c.hooked(); err != nil {
			return 0, err
		}
		b.hooked = true
	}
	n, err := b.request(f, p, abi.NVFS_IOCTL_WRITE)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: the range that was written holds other bytes", ErrNotDirect)
	}
	return n, err
}
