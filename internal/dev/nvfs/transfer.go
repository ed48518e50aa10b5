package nvfs

import (
	"fmt"
	"io/fs"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// Read reads n bytes from off of a file to devOff of the buffer. All three are
// multiples of 4096; fewer bytes come only where the file ends. On an error the
// first bytes, as many as the number says, are there, and what lies behind them is
// undefined.
func (b *Buffer) Read(f *File, off int64, n, devOff uint64) (int64, error) {
	done, err := b.transfer(f, off, n, devOff, b.readPiece)
	if err != nil {
		err = fmt.Errorf("READ of %d bytes: %w", n, err)
	}
	return done, err
}

// Write writes n bytes from devOff of the buffer to off of a file. When it fails
// with [ErrNotDirect] after it has begun, the range in the file is undefined.
func (b *Buffer) Write(f *File, off int64, n, devOff uint64) (int64, error) {
	done, err := b.transfer(f, off, n, devOff, b.writePiece)
	if err != nil {
		err = fmt.Errorf("WRITE of %d bytes: %w", n, err)
	}
	return done, err
}

// A piece is a transfer that the module can do in one request.
type piece struct {
	off    int64
	n      uint64
	devOff uint64
}

// transfer cuts a transfer into pieces: one that begins inside a GPU page ends
// with that page.
func (b *Buffer) transfer(f *File, off int64, n, devOff uint64, do func(*File, piece) (int64, error)) (done int64, err error) {
	if off < 0 || (uint64(off)|n|devOff)%abi.BLOCK_SIZE != 0 {
		return 0, fmt.Errorf("offset %d, size %d, offset in the buffer %d: %w", off, n, devOff, ErrAlign)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shadow == nil {
		return 0, fs.ErrClosed
	}
	if devOff > b.cfg.Size || n > b.cfg.Size-devOff {
		return 0, fmt.Errorf("%d bytes at %d of a buffer of %d", n, devOff, b.cfg.Size)
	}
	for uint64(done) < n {
		p := piece{off + done, n - uint64(done), devOff + uint64(done)}
		if in := (b.cfg.Addr + p.devOff) % abi.GPU_PAGE_SIZE; in != 0 {
			p.n = min(p.n, abi.GPU_PAGE_SIZE-in)
		}
		k, err := do(f, p)
		if done += k; err != nil {
			return done, b.explain(err)
		}
		if k == 0 || k%abi.BLOCK_SIZE != 0 {
			break // the end of the file
		}
	}
	return done, nil
}

// explain says what is behind an error, if the page knows.
func (b *Buffer) explain(err error) error {
	if b.died() {
		return fmt.Errorf("%w: %w", ErrRevoked, err)
	}
	return err
}

func (b *Buffer) request(f *File, p piece, req uintptr) (int64, error) {
	a := abi.IOArgs{
		CPUVAddr: uint64(b.shadow.Addr()), Offset: p.off, Size: p.n, DevPtrOff: p.devOff,
		Inum: f.ino, Majdev: f.major, Mindev: f.minor, FD: int32(f.fd), Bits: abi.BitSync,
	}
	clear(b.arg[:])
	a.Encode(b.arg[:])
	n, err := b.call(req)
	if err == nil && (n < 0 || uint64(n) > p.n) {
		return 0, fmt.Errorf("the module moved %d bytes of %d", n, p.n)
	}
	return n, err
}

// readPiece reads, and looks at the end-fence page. A hole that is none in the
// file may have been filled meanwhile, so it is read once more.
func (b *Buffer) readPiece(f *File, p piece) (n int64, err error) {
	for range 2 {
		b.clean()
		if n, err = b.request(f, p, abi.NVFS_IOCTL_READ); err != nil {
			return 0, err
		}
		if b.died() {
			return 0, ErrRevoked
		}
		if err := abi.ParseSparse(b.meta, &b.sparse); err != nil {
			return 0, err
		}
		filled, err := b.fillHoles(f, p, n)
		if err != nil {
			return 0, err
		}
		if filled {
			if n > b.sparse.Bytes() {
				f.moved.Store(true)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: it reports data as a hole", ErrNotDirect)
}

// fillHoles zeroes the holes that the page lists, provided that they are holes of
// the file.
func (b *Buffer) fillHoles(f *File, p piece, n int64) (ok bool, err error) {
	for _, h := range b.sparse.Holes {
		off := b.sparse.Offset + int64(h.Start)*abi.BLOCK_SIZE
		end := min(off+int64(h.Blocks)*abi.BLOCK_SIZE, p.off+n)
		if off < p.off || off >= end {
			return false, fmt.Errorf("the end-fence page has a hole at %d that was not read", off)
		}
		if hole, err := f.hole(off, end-off); !hole || err != nil {
			return false, err
		}
		if err := b.cfg.Zero(b.cfg.Addr+p.devOff+uint64(off-p.off), uint64(end-off)); err != nil {
			return false, fmt.Errorf("zeroing a hole: %w", err)
		}
		b.zeroed += end - off
	}
	return true, nil
}

// Zeroed is how many bytes of holes the reads have met so far: memory that was
// cleared instead of read to.
func (b *Buffer) Zeroed() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.zeroed
}

// writePiece writes, once it is known that a driver asks the module for
// addresses: others write the shadow buffer.
func (b *Buffer) writePiece(f *File, p piece) (int64, error) {
	if !b.hooked {
		if err := b.c.hooked(); err != nil {
			return 0, err
		}
		b.hooked = true
	}
	n, err := b.request(f, p, abi.NVFS_IOCTL_WRITE)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: the range in the file is damaged", ErrNotDirect)
	}
	return n, err
}
