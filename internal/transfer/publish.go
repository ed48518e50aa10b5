package transfer

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// newOutput creates the file that will become dst.
func newOutput(dst string, o *Options) (*atomicfile.File, error) {
	return atomicfile.Create(dst, atomicfile.Options{
		Mode: 0o600, Unnamed: !o.named, Temp: o.temp, Step: func(string) { o.hold() },
	})
}

// publish forces the finished file to storage and gives it its name.
func publish(out *atomicfile.File, mode os.FileMode, o *Options) error {
	if err := out.Chmod(mode); err != nil {
		return err
	}
	o.hold()
	if err := out.Sync(); err != nil {
		return err
	}
	return out.Commit()
}

// A flusher sends what was written to storage as the copy goes on, and waits for
// what is older: so the last sync is short, and a copy that is stopped does not
// wait for gigabytes.
type flusher struct {
	fd   int
	sync func(fd int, off, n int64, flags int) error
	last piece
	off  bool // the system has no such thing
}

// wrote takes a piece that was written. An error of the disk must be told at once:
// the kernel tells a descriptor of it only once, and a later fsync would succeed.
func (f *flusher) wrote(p piece) error {
	if f.off {
		return nil
	}
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := f.send(p, unix.SYNC_FILE_RANGE_WRITE)
	if err == nil && f.last.mem.Len > 0 {
		err = f.send(f.last, wait)
	}
	f.last = p
	if syncless(err) {
		f.off = true
		return nil
	}
	return os.NewSyscallError("sync_file_range", err)
}

func (f *flusher) send(p piece, flags int) error {
	return f.sync(f.fd, p.off, int64(p.mem.Len), flags)
}

// syncless reports an answer that is not the disk's: a sandbox or an emulated
// kernel does not know the call.
func syncless(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ESPIPE) || errors.Is(err, unix.EOPNOTSUPP)
}
