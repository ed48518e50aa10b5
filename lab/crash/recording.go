// Package crash visits, inside a guest of the lab, the states in which a power
// cut could have left a drive: the drive's writes are recorded while a test
// runs, then repeated up to a chosen point, and the file system is mounted
// there and looked at.
//
// The drive's Guest description names a second drive in LogTo, which receives
// the record.
package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/lab/writelog"
)

// A Point is a moment between two writes: the number of writes before it.
type Point int

// A Recording is the record of one drive.
type Recording struct {
	fs     string
	size   int64
	sector int
	file   *os.File
	log    *writelog.Log
}

// Open opens the record of a mounted drive. recorded and log are the drives'
// ids; fs is the recorded drive's file system.
func Open(recorded, log, fs string) (*Recording, error) {
	disk, err := inside.Disk(recorded)
	if err != nil {
		return nil, err
	}
	size, sector, err := geometry(disk)
	if err != nil {
		return nil, fmt.Errorf("drive %s: %w", recorded, err)
	}
	path, err := inside.Disk(log)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Recording{fs: fs, size: size, sector: sector, file: f}
	if err := r.refresh(); err != nil {
		f.Close()
		return nil, err
	}
	if r.log, err = writelog.Open(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("drive %s: %w", log, err)
	}
	return r, nil
}

func geometry(disk string) (size int64, sector int, err error) {
	f, err := os.Open(disk)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	if sector, err = unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET); err != nil {
		return 0, 0, os.NewSyscallError("BLKSSZGET", err)
	}
	size, err = f.Seek(0, 2)
	return size, sector, err
}

// Close closes the record.
func (r *Recording) Close() error { return r.file.Close() }

// refresh drops what the kernel remembers of the log, which grows behind its
// back.
func (r *Recording) refresh() error {
	return os.NewSyscallError("BLKFLSBUF", unix.IoctlSetInt(int(r.file.Fd()), unix.BLKFLSBUF, 0))
}

// Now is the point after everything that was written so far. What a program
// was told to be durable before Now must be found at every point from there.
func (r *Recording) Now() (Point, error) {
	if err := r.refresh(); err != nil {
		return 0, err
	}
	n, err := r.log.Len()
	return Point(n), err
}

// Points are the points from first on that are worth a visit: first itself,
// the one after each flush or durable write, the last, and up to extra more
// that the seed picks from the rest.
func (r *Recording) Points(first Point, extra int, seed uint64) ([]Point, error) {
	last, err := r.Now()
	if err != nil {
		return nil, err
	}
	entries, err := r.log.Entries(int(last))
	if err != nil {
		return nil, err
	}
	if first > last {
		return nil, fmt.Errorf("point %d of a record of %d writes", first, last)
	}
	points := []Point{first, last}
	var rest []Point
	for i, e := range entries[first:] {
		if p := first + Point(i) + 1; e.Durable() {
			points = append(points, p)
		} else {
			rest = append(rest, p)
		}
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	points = append(points, rest[:min(extra, len(rest))]...)
	slices.Sort(points)
	return slices.Compact(points), nil
}

// Visit calls look at each point, in order, with the directory where the file
// system of that moment is mounted. Its recovery has run, as after a real cut.
// A file system that cannot be mounted is an error.
func (r *Recording) Visit(points []Point, look func(p Point, dir string) error) error {
	if len(points) == 0 {
		return errors.New("no point to visit")
	}
	last := slices.Max(points)
	if err := r.refresh(); err != nil {
		return err
	}
	entries, err := r.log.Entries(int(last))
	if err != nil {
		return err
	}
	s, err := newState(r.size)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, p := range slices.Sorted(slices.Values(points)) {
		for ; s.applied < int(p); s.applied++ {
			if err := r.log.Apply(entries[s.applied], s); err != nil {
				return fmt.Errorf("point %d: %w", p, err)
			}
		}
		if err := s.visit(r.fs, r.sector, func(dir string) error { return look(p, dir) }); err != nil {
			return fmt.Errorf("power cut after write %d: %w", p, err)
		}
	}
	return nil
}
