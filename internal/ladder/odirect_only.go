package ladder

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
)

// This file is for a descriptor that has O_DIRECT set and cannot be reopened without
// it: the privileges are gone, or /proc is not mounted. Unaligned requests read the
// aligned range around them, and writes put it back, one at a time: two in one block
// would undo each other, and one that truncates the file would cut off what another
// has appended. Nothing protects against writes of other processes.

var unalignedWrites sync.Mutex

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
	unalignedWrites.Lock()
	defer unalignedWrites.Unlock()
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
	if _, err := pwriteAll(f.Direct(), buf, start); err != nil {
		return 0, err
	}
	// The aligned range may reach past the end of the write. A file that ends
	// elsewhere by now was extended by another writer.
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
