package block

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// A Guest is a drive whose bytes are in a file that the caller has open, during one
// request. It serves one request at a time.
type Guest struct {
	fd   int
	view *View // nil if drive and file have the same bytes
	err  error
	vec  vector
}

// Admit sets the descriptor, which must stay open until Dismiss, and how the drive has
// the file's bytes; nil means as they are.
func (g *Guest) Admit(fd int, v *View) { g.fd, g.view, g.err = fd, v, nil }

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
	if g.view == nil {
		return g.move(unix.SYS_PREADV, segs, off)
	}
	off -= g.view.shift
	n, err := g.move(unix.SYS_PREADV, segs, off)
	for left := n; left > 0; segs = segs[1:] {
		k := min(left, len(segs[0]))
		g.view.apply(segs[0][:k], off)
		off, left = off+int64(k), left-k
	}
	return n, err
}

// WriteV writes the segments at off.
func (g *Guest) WriteV(segs [][]byte, off int64) (int, error) {
	if g.view == nil {
		return g.move(unix.SYS_PWRITEV, segs, off)
	}
	off -= g.view.shift
	n := 0
	for _, s := range segs {
		n += len(s)
	}
	// Direct I/O needs aligned memory, and the segments are not ours to change.
	mem, err := unix.Mmap(-1, 0, max(n, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		g.err = err
		return 0, err
	}
	defer unix.Munmap(mem)
	at := 0
	for _, s := range segs {
		at += copy(mem[at:], s)
	}
	g.view.apply(mem[:n], off)
	return g.move(unix.SYS_PWRITEV, [][]byte{mem[:n]}, off)
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
