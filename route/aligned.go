package route

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
)

// This file is for the odd descriptor that has O_DIRECT set and cannot be opened
// a second time without it: the privileges are gone, or /proc is not mounted.
// Requests that are not aligned then read the aligned range around them, and
// writes put it back, one at a time: two in one block would undo each other, and
// one that cuts the file to size would cut off what another has appended. Against
// other processes, and other ways to write, there is no such protection.

var raggedWrites sync.Mutex

// around is the aligned range that contains [off, off+n).
func around(f *storage.File, off int64, n int) (start int64, buf []byte) {
	a := directUnit(f)
	start = off / a * a
	end := (off + int64(n) + a - 1) / a * a
	return start, alignedBytes(int(end-start), hostPage)
}

func preadAligned(f *storage.File, p []byte, off int64) (int, error) {
	start, buf := around(f, off, len(p))
	got, err := directRead(f, buf, start)
	if err != nil {
		return 0, err
	}
	n := 0
	if skip := int(off - start); got > skip {
		n = copy(p, buf[skip:got])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func pwriteAligned(f *storage.File, p []byte, off int64) (int, error) {
	raggedWrites.Lock()
	defer raggedWrites.Unlock()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	start, buf := around(f, off, len(p))
	if f.Readable() {
		if _, err := directRead(f, buf, start); err != nil {
			return 0, err
		}
	} else if start < size {
		return 0, &os.PathError{Op: "unaligned write through an O_DIRECT descriptor that is write-only", Path: f.Name, Err: unix.EINVAL}
	}
	copy(buf[off-start:], p)
	for done := 0; done < len(buf); {
		n, err := unix.Pwrite(f.Direct(), buf[done:], start+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return 0, err
		}
		done += n
	}
	// The aligned range may reach past the end that the write asked for. A file that
	// ends elsewhere by now was extended by somebody else.
	end := max(size, off+int64(len(p)))
	if size, err = f.Size(); err == nil && !f.Facts.Block && size > end && size == start+int64(len(buf)) {
		err = unix.Ftruncate(f.Direct(), end)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// directRead reads into buf until the file ends.
func directRead(f *storage.File, buf []byte, off int64) (int, error) {
	n, err := moveAll(unix.Pread, f.Direct(), buf, off, directUnit(f), new(int))
	return int(n), err
}
