package block

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// ReadV fills the segments from off. It returns fewer bytes, without an error, only
// at the end of the file.
func (b *File) ReadV(segs [][]byte, off int64) (int, error) {
	return b.move("read", unix.SYS_PREADV, segs, off)
}

// WriteV writes the segments at off.
func (b *File) WriteV(segs [][]byte, off int64) (int, error) {
	return b.move("write", unix.SYS_PWRITEV, segs, off)
}

func (b *File) move(op string, trap uintptr, segs [][]byte, off int64) (moved int, err error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.fd < 0 {
		return 0, &fs.PathError{Op: op, Path: b.name, Err: fs.ErrClosed}
	}
	v := b.vecs.get(segs)
	defer b.vecs.put(v)
	direct := b.direct >= 0
	for len(v.left) > 0 {
		// After a short transfer the rest may be unaligned.
		direct = direct && v.fits(off+int64(moved), b.align)
		fd := b.fd
		if direct {
			fd = b.direct
		}
		n, err := v.call(trap, fd, off+int64(moved))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL && direct:
			direct = false // the file system rejects it
			continue
		case err != nil:
			return moved, &fs.PathError{Op: op, Path: b.name, Err: err}
		case n == 0:
			return moved, nil
		}
		v.advance(n)
		moved += n
	}
	return moved, nil
}
