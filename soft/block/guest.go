package block

import (
	"errors"

	"golang.org/x/sys/unix"
)

// A Guest is a drive whose bytes lie in an open file of somebody else, for as
// long as one request takes: a file system has told the drive where to find them.
// It serves one request at a time.
type Guest struct {
	fd   int
	err  error
	vecs shelf
}

// Admit has the drive use a descriptor, which stays the caller's and must stay
// open until Dismiss.
func (g *Guest) Admit(fd int) { g.fd, g.err = fd, nil }

// Dismiss ends the use of the descriptor and returns what went wrong with the
// file: a drive's status says less.
func (g *Guest) Dismiss() error {
	g.fd = -1
	return g.err
}

// guestSize is more than any file has: where a file ends is for its file system
// to say.
const guestSize = 1 << 60

// guestBlock is the coarsest unit in which file systems take direct I/O.
const guestBlock = 4096

// Size has no end.
func (g *Guest) Size() (int64, error) { return guestSize, nil }

// ReadV fills the segments, in order, from off. It returns fewer bytes, and no
// error, where the file ends.
func (g *Guest) ReadV(segs [][]byte, off int64) (int, error) {
	return g.move(unix.SYS_PREADV, segs, off)
}

// WriteV writes the segments, in order, at off.
func (g *Guest) WriteV(segs [][]byte, off int64) (int, error) {
	return g.move(unix.SYS_PWRITEV, segs, off)
}

func (g *Guest) move(trap uintptr, segs [][]byte, off int64) (moved int, err error) {
	v := g.vecs.get(segs)
	defer g.vecs.put(v)
	for len(v.left) > 0 {
		n, err := v.call(trap, g.fd, off+int64(moved))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			g.err = err
			return moved, err
		}
		v.advance(n)
		moved += n
		if n%guestBlock != 0 || n == 0 {
			break // the file ends here; were it to grow now, the rest would not be aligned
		}
	}
	return moved, nil
}

// Zero is refused: nobody asks for it.
func (g *Guest) Zero(int64, int64) error { return errors.ErrUnsupported }

// Flush returns when everything that was written is durable.
func (g *Guest) Flush() error { return unix.Fdatasync(g.fd) }
