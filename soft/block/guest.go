package block

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// A Guest is a drive whose bytes are in a file that the caller has open, during one
// request. It serves one request at a time.
type Guest struct {
	fd  int
	err error
	vec vector
}

// Admit sets the descriptor, which must stay open until Dismiss.
func (g *Guest) Admit(fd int) { g.fd, g.err = fd, nil }

// Dismiss ends the use of the descriptor and returns the file's error, which tells
// more than a status.
func (g *Guest) Dismiss() error {
	g.fd = -1
	return g.err
}

// guestSize exceeds any file: the file system knows the size and the largest offset,
// so that a request beyond it gets its answer.
const guestSize = math.MaxInt64 &^ (guestBlock - 1)

// guestBlock is the largest unit of direct I/O.
const guestBlock = 4096

// Size returns a size that no file has.
func (g *Guest) Size() (int64, error) { return guestSize, nil }

// ReadV fills the segments from off. It returns fewer bytes, without an error, at the
// end of the file.
func (g *Guest) ReadV(segs [][]byte, off int64) (int, error) {
	return g.move(unix.SYS_PREADV, segs, off)
}

// WriteV writes the segments at off.
func (g *Guest) WriteV(segs [][]byte, off int64) (int, error) {
	return g.move(unix.SYS_PWRITEV, segs, off)
}

func (g *Guest) move(trap uintptr, segs [][]byte, off int64) (moved int, err error) {
	g.err = nil // the last call's counts
	v := &g.vec
	v.set(segs)
	defer clear(v.iov) // of its pointers
	for len(v.left) > 0 {
		n, err := v.call(trap, g.fd, off+int64(moved))
		if err != nil {
			g.err = err
			return moved, err
		}
		v.advance(n)
		moved += n
		if n%guestBlock != 0 || n == 0 {
			break // end of file; if it grew now, the rest would not be aligned
		}
	}
	return moved, nil
}

// Zero is not supported: no caller needs it.
func (g *Guest) Zero(int64, int64) error { return errors.ErrUnsupported }

// Flush returns when everything that was written is durable.
func (g *Guest) Flush() error { return unix.Fdatasync(g.fd) }
