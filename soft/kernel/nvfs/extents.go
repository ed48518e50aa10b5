package nvfs

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// extents tells which blocks of a file are allocated. It opens the file again,
// because SEEK_DATA moves the offset. An mgroup keeps the extents of the file read
// last: opening takes longer than the rest of a READ.
type extents struct {
	fd       int // valid when open
	open     bool
	whole    bool // a block device: all blocks exist
	dev, ino uint64
}

// of switches to a file.
func (e *extents) of(f *targetFile) (err error) {
	if e.open && e.dev == f.stat.Dev && e.ino == f.stat.Ino {
		return nil // the inode number cannot be reused while the file is open
	}
	e.close()
	if e.whole = f.stat.Mode&unix.S_IFMT == unix.S_IFBLK; e.whole {
		return nil
	}
	if e.fd, err = reopen(f.fd, f.flags&unix.O_ACCMODE); err != nil {
		return err
	}
	e.open, e.dev, e.ino = true, f.stat.Dev, f.stat.Ino
	return nil
}

func (e *extents) close() {
	if e.open {
		_ = unix.Close(e.fd) // opened for reading only
	}
	*e = extents{}
}

// next tells whether the blocks from off on have data, and how many, up to most, are
// alike. A block with any data counts as data.
func (e *extents) next(off, most int64) (data bool, n int64, err error) {
	if e.whole {
		return true, most, nil
	}
	start, err := unix.Seek(e.fd, off, unix.SEEK_DATA)
	if errors.Is(err, syscall.ENXIO) {
		return false, most, nil
	}
	if err != nil {
		return false, 0, err
	}
	if start >= off+abi.BLOCK_SIZE {
		return false, min(most, (start-off)/abi.BLOCK_SIZE), nil
	}
	end, err := unix.Seek(e.fd, start, unix.SEEK_HOLE)
	if errors.Is(err, syscall.ENXIO) {
		return false, most, nil // truncated meanwhile
	}
	if err != nil {
		return false, 0, err
	}
	if end == off {
		return false, 1, nil // truncated and extended meanwhile
	}
	return true, min(most, (end-off+abi.BLOCK_SIZE-1)/abi.BLOCK_SIZE), nil
}
