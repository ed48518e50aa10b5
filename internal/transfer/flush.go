package transfer

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A flusher starts writing each chunk to storage and waits for the one before: the
// last sync is short, and a copy that is stopped does not wait for gigabytes.
type flusher struct {
	fd       int
	sync     func(fd int, off, n int64, flags int) error
	last     chunk
	disabled bool // the system does not support it
}

// wrote is called when a chunk was written; a nil flusher leaves the rest to the
// destination. Its error must be returned: the kernel
// reports an error of the disk to a descriptor once, and a later fsync succeeds.
func (f *flusher) wrote(p chunk) error {
	if f == nil || f.disabled {
		return nil
	}
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	err := f.send(p, unix.SYNC_FILE_RANGE_WRITE)
	if err == nil && f.last.mem.Len > 0 {
		err = f.send(f.last, wait)
	}
	f.last = p
	if syncless(err) {
		f.disabled = true
		return nil
	}
	return os.NewSyscallError("sync_file_range", err)
}

// start has the kernel begin to write the first n bytes of a file.
func (f *flusher) start(n int64) error {
	err := f.sync(f.fd, 0, n, unix.SYNC_FILE_RANGE_WRITE)
	if err == nil || syncless(err) {
		return nil
	}
	return os.NewSyscallError("sync_file_range", err)
}

func (f *flusher) send(p chunk, flags int) error {
	return f.sync(f.fd, p.off, int64(p.mem.Len), flags)
}

// syncless reports an error that is not the disk's: a sandbox or an emulated kernel
// does not implement the call.
func syncless(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ESPIPE) || errors.Is(err, unix.EOPNOTSUPP)
}
