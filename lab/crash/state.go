package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A state is the contents of a drive, as a sparse file in memory. Visits use copies,
// because mounting changes a file system.
type state struct {
	*os.File
	applied int // entries of the log
}

// memory is a tmpfs, where holes take no space.
const memory = "/run"

// newState creates a file without a name.
func newState(size int64) (*state, error) {
	f, err := os.CreateTemp(memory, "state-")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(f.Name()), f.Truncate(size)); err != nil {
		f.Close()
		return nil, err
	}
	return &state{File: f}, nil
}

// WriteAt makes holes of zeros: mkfs writes many, and each visit copies the data.
func (s *state) WriteAt(p []byte, off int64) (int, error) {
	if len(bytes.TrimLeft(p, "\x00")) == 0 {
		return len(p), s.Discard(off, int64(len(p)))
	}
	return s.File.WriteAt(p, off)
}

// Discard makes a hole: emulated drives read discarded ranges as zeros.
func (s *state) Discard(off, n int64) error {
	return unix.Fallocate(int(s.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// copy returns a state with the same contents.
func (s *state) copy() (*state, error) {
	st, err := s.Stat()
	if err != nil {
		return nil, err
	}
	c, err := newState(st.Size())
	if err != nil {
		return nil, err
	}
	if err := copySparse(c.File, s.File); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// visit mounts the state, which changes it, and calls look.
func (s *state) visit(fs string, sector int, look func(dir string) error) error {
	dev, err := attach(s.File, sector)
	if err != nil {
		return err
	}
	return errors.Join(mounted(dev.Name(), fs, look), detach(dev))
}

// copySparse copies src without its holes.
func copySparse(dst, src *os.File) error {
	for off := int64(0); ; {
		start, err := src.Seek(off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := src.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(dst, start), io.NewSectionReader(src, start, end-start)); err != nil {
			return err
		}
		off = end
	}
}

func mounted(dev, fs string, look func(dir string) error) error {
	dir, err := os.MkdirTemp(memory, "cut-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	options := "noinit_itable" // of ext4: no writes but the recovery's
	if fs == "xfs" {
		options = "nouuid" // the drive itself is mounted
	}
	if err := unix.Mount(dev, dir, fs, 0, options); err != nil {
		return fmt.Errorf("mount %s: %w", fs, err)
	}
	err = look(dir)
	if e := unix.Unmount(dir, 0); e != nil {
		err = errors.Join(err, fmt.Errorf("unmount: %w", e))
	}
	return err
}
