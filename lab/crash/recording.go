// Package crash visits, inside a guest of the lab, the states in which a power
// cut could have left a drive. The drive's writes are recorded while a test runs,
// then repeated up to a chosen point, without some that were not flushed, and the
// file system is mounted and checked.
//
// LogTo in the drive's description is the drive for the record.
package crash

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
)

// A Point is a moment between two writes: the number of writes before it.
type Point int

// A Recording is the record of one drive.
type Recording struct {
	fs     string
	size   int64
	sector int
	file   *os.File
	log    *writeLog
}

// Open opens the record of a mounted drive. recorded and log are the ids of drives;
// fs is the recorded drive's file system.
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
	if r.log, err = openLog(f); err != nil {
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

// refresh drops the kernel's cache of the log, which QEMU appends to.
func (r *Recording) refresh() error {
	return os.NewSyscallError("BLKFLSBUF", unix.IoctlSetInt(int(r.file.Fd()), unix.BLKFLSBUF, 0))
}

// Now is the point after everything that was written so far. Data that was durable
// before Now must be found at every later point.
func (r *Recording) Now() (Point, error) {
	if err := r.refresh(); err != nil {
		return 0, err
	}
	n, err := r.log.length()
	return Point(n), err
}

// Cuts returns the power cuts to test from a point on: at each flush and durable
// write, and extra others that the seed selects; with extra < 0, all.
func (r *Recording) Cuts(first Point, extra int, seed uint64) ([]Cut, error) {
	h, err := r.history()
	if err != nil {
		return nil, err
	}
	if int(first) > len(h) {
		return nil, fmt.Errorf("point %d exceeds the record of %d writes", first, len(h))
	}
	cuts := h.marks(int(first))
	if extra < 0 {
		cuts = append(cuts, h.all(int(first))...)
	} else {
		cuts = append(cuts, h.some(int(first), extra, seed)...)
	}
	return distinct(cuts), nil
}

func (r *Recording) history() (history, error) {
	n, err := r.Now()
	if err != nil {
		return nil, err
	}
	return r.log.entries(int(n))
}

// parallel is how many file systems are tested in parallel. Mounting one is mostly
// waiting.
const parallel = 4

// Visit calls look for each cut with the directory where the file system is mounted
// after the cut and its recovery. A file system that cannot be mounted is an error.
// Calls of look run in parallel.
func (r *Recording) Visit(cuts []Cut, look func(c Cut, dir string) error) error {
	if len(cuts) == 0 {
		return errors.New("no power cuts")
	}
	h, err := r.history()
	if err != nil {
		return err
	}
	s, err := newState(r.size)
	if err != nil {
		return err
	}
	defer s.Close()
	var g errgroup.Group
	g.SetLimit(parallel)
	var failed atomic.Bool
	for _, c := range distinct(slices.Clone(cuts)) {
		after, err := r.after(h, s, c)
		if err != nil {
			return errors.Join(fmt.Errorf("%v: %w", c, err), g.Wait())
		}
		if failed.Load() {
			after.Close()
			break
		}
		g.Go(func() error {
			defer after.Close()
			err := after.visit(r.fs, r.sector, func(dir string) error { return look(c, dir) })
			if err != nil {
				failed.Store(true)
				return fmt.Errorf("%v: %w", c, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// after applies writes to the state up to the last flush before the cut, and returns
// a copy with the later writes that are not lost.
func (r *Recording) after(h history, s *state, c Cut) (*state, error) {
	sure := h.flushed(c.At)
	for ; s.applied < sure; s.applied++ {
		if err := r.log.apply(h[s.applied], s); err != nil {
			return nil, err
		}
	}
	cut, err := s.copy()
	if err != nil {
		return nil, fmt.Errorf("copy the state: %w", err)
	}
	for i := sure; i < c.At; i++ {
		if _, lost := slices.BinarySearch(c.Lost, i); lost {
			continue
		}
		if err := r.log.apply(h[i], cut); err != nil {
			return nil, errors.Join(err, cut.Close())
		}
	}
	return cut, nil
}
