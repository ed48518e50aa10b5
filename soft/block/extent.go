package block

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// NextData finds the first bytes at or after off that were ever written, and
// where they end. Behind the last it returns io.EOF. A file system that keeps
// no account of holes calls everything written.
func (b *File) NextData(off int64) (start, end int64, err error) {
	err = b.use("seek", func() (err error) {
		if start, err = unix.Seek(b.fd, off, unix.SEEK_DATA); err == nil {
			end, err = unix.Seek(b.fd, start, unix.SEEK_HOLE)
		}
		return err
	})
	if errors.Is(err, unix.ENXIO) {
		return 0, 0, io.EOF
	}
	return start, end, err
}
