package nvfs

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// extents says which blocks of a file exist. It has an open file of its own:
// looking for data moves the offset, and the program's must stay. An mgroup keeps
// that of the file that was read last, because opening it takes longer than all
// else that a READ does.
type extents struct {
	fd       int // valid when open
	open     bool
	whole    bool // a device: everything exists
	dev, ino uint64
}

// of turns to a file.
func (e *extents) of(f *hostFile) (err error) {
	if e.open && e.dev == f.stat.Dev && e.ino == f.stat.Ino {
		return nil // it cannot have become another: this one keeps its number
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

// close lets go of the file.
func (e *extents) close() {
	if e.open {
		_ = unix.Close(e.fd) // it was only looked at
	}
	*e = extents{}
}

// next says of what kind the blocks from off on are, and how many of at most
// most are of that kind. A block of which any byte exists does.
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
		return false, most, nil // it was cut off meanwhile
	}
	if err != nil {
		return false, 0, err
	}
	if end == off {
		return false, 1, nil // it was cut off and has grown again meanwhile
	}
	return true, min(most, (end-off+abi.BLOCK_SIZE-1)/abi.BLOCK_SIZE), nil
}
