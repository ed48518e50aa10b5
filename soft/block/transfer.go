package block

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// ReadV fills the segments, in order, from off. It returns fewer bytes than
// they hold, and no error, only where the file ends.
func (b *File) ReadV(segs [][]byte, off int64) (int, error) {
	return b.move("read", unix.SYS_PREADV, segs, off)
}

// WriteV writes the segments, in order, at off.
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
		// What an odd end leaves over may not fit any more.
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
			direct = false // the file system changed its mind
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
