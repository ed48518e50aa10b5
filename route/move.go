package route

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
)

// A transferCall is pread or pwrite.
type transferCall func(fd int, b []byte, off int64) (int, error)

func syscallFor(d Dir) transferCall {
	if d == Write {
		return unix.Pwrite
	}
	return unix.Pread
}

// moveAll calls pread or pwrite until all of b was moved or the file ends. Behind a
// count that is no multiple of unit the file has ended: if it grows at that moment,
// direct I/O could not go on there.
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
		if n == 0 || int64(n)%unit != 0 {
			break
		}
	}
	return int64(done), nil
}

// directUnit is what offsets and lengths of direct I/O are multiples of.
func directUnit(f *storage.File) int64 { return int64(max(f.Facts.Direct.OffAlign, 512)) }
