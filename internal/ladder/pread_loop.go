package ladder

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A transferCall is pread or pwrite.
type transferCall func(fd int, b []byte, off int64) (int, error)

func syscallFor(d route.Dir) transferCall {
	if d == route.Write {
		return unix.Pwrite
	}
	return unix.Pread
}

// moveAll calls pread or pwrite until all of b was moved or the file ends. After a
// count that is not a multiple of unit the file has ended: if it grows at that
// moment, direct I/O could not continue there.
func moveAll(call transferCall, fd int, b []byte, off, unit int64, retries *int) (int64, error) {
	done := 0
	for done < len(b) {
		n, err := call(fd, b[done:], off+int64(done))
		if errors.Is(err, unix.EINTR) {
			*retries++
			continue
		}
		if err != nil {
			return int64(done), err
		}
		done += n
		if n == 0 || unit > 1 && int64(n)%unit != 0 {
			break
		}
	}
	return int64(done), nil
}

// directUnit is what offsets and lengths of direct I/O are multiples of.
func directUnit(f *storage.File) int64 { return int64(max(f.Facts.Direct.OffAlign, 512)) }

// preadFull reads until p is full or the file ends (io.EOF).
func preadFull(f *storage.File, p []byte, off int64) (int, error) {
	if f.Buffered() < 0 {
		return preadAligned(f, p, off)
	}
	var retries int
	n, err := moveAll(unix.Pread, f.Buffered(), p, off, 1, &retries)
	if err == nil && int(n) < len(p) {
		err = io.EOF
	}
	return int(n), err
}

// pwriteFull writes all of p, with O_DIRECT if the caller opened the file so and the
// request is aligned, else through the page cache.
func pwriteFull(f *storage.File, p []byte, off int64) (int, error) {
	if f.CallerDirect() && f.Facts.Direct.Aligned(off, int64(len(p))) {
		return pwriteAll(f.FD(), p, off)
	}
	return pwriteBuffered(f, p, off)
}

// pwriteBuffered writes all of p through the page cache, if the file can be opened
// that way.
func pwriteBuffered(f *storage.File, p []byte, off int64) (int, error) {
	if f.Buffered() < 0 {
		return pwriteAligned(f, p, off)
	}
	return pwriteAll(f.Buffered(), p, off)
}

func pwriteAll(fd int, p []byte, off int64) (int, error) {
	var retries int
	n, err := moveAll(unix.Pwrite, fd, p, off, 1, &retries)
	if err == nil && int(n) < len(p) {
		err = io.ErrShortWrite
	}
	return int(n), err
}
