package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A state is a drive's contents, as a sparse file in memory. Visits work on
// copies, because mounting changes a file system.
type state struct {
	*os.File
	applied int // entries of the log that are in it
}

// memory is a tmpfs: holes cost nothing there.
const memory = "/run"

func newState(size int64) (*state, error) {
	f, err := temporary(size)
	return &state{File: f}, err
}

// temporary makes a file without a name.
func temporary(size int64) (*os.File, error) {
	f, err := os.CreateTemp(memory, "state-")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(f.Name()), f.Truncate(size)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// WriteAt leaves a hole where zeros are written: mkfs writes many, and each
// visit copies what is there.
func (s *state) WriteAt(p []byte, off int64) (int, error) {
	if len(bytes.TrimLeft(p, "\x00")) == 0 {
		return len(p), s.Discard(off, int64(len(p)))
	}
	return s.File.WriteAt(p, off)
}

// Discard gives a range up; the emulated drives read it as zeros then.
func (s *state) Discard(off, n int64) error {
	return unix.Fallocate(int(s.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// visit mounts a copy of the state, to which finish adds the last writes, and
// looks at it.
func (s *state) visit(fs string, sector int, finish func(*state) error, look func(dir string) error) error {
	st, err := s.Stat()
	if err != nil {
		return err
	}
	c, err := temporary(st.Size())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := copySparse(c, s.File); err != nil {
		return fmt.Errorf("copy the state: %w", err)
	}
	if err := finish(&state{File: c}); err != nil {
		return err
	}
	dev, err := attach(c, sector)
	if err != nil {
		return err
	}
	err = mounted(dev.Name(), fs, look)
	return errors.Join(err, detach(dev))
}

// copySparse copies the parts of src that are there.
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
	options := ""
	if fs == "xfs" {
		options = "nouuid" // its twin is mounted already
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
