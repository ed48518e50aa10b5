package cufile

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A Source is storage without a descriptor: a file system in user space, an archive in
// memory. Transfers call it from several goroutines at once, with parts of the range in
// any order. An error that is a unix.Errno keeps its number.
//
// A Source may also have the methods Size() (int64, error) and Sync() error, which
// those of the File call, and TakeOrigin() route.Origin, which goes into receipts: what
// its requests to a store did since the last call.
type Source interface {
	// Name is what messages and statistics call it.
	Name() string
	io.ReaderAt
	io.WriterAt
}

// RegisterSource registers a source. Its bytes pass through host memory: only the ring
// and host routes need no descriptor.
func (d *Driver) RegisterSource(s Source) (*File, error) {
	if s == nil {
		return nil, &Error{Op: "register", Object: "source", Code: InvalidValue, Err: errors.New("it is nil")}
	}
	if err := d.use(); err != nil {
		return nil, &Error{Op: "register", Object: s.Name(), Code: CodeOf(err), Err: err}
	}
	f := &File{drv: d, fd: -1, src: withoutDescriptor{s}}
	if err := d.addFile(f); err != nil {
		return nil, err
	}
	d.log.Debug("cufile: register", "source", s.Name())
	return f, nil
}

// withoutDescriptor is a Source as the routes see it.
type withoutDescriptor struct{ Source }

func (s withoutDescriptor) File() *storage.File { return nil }

func (s withoutDescriptor) Size() (int64, error) {
	if sized, ok := s.Source.(interface{ Size() (int64, error) }); ok {
		return sized.Size()
	}
	return 0, &Error{Op: "find the size of", Object: s.Name(), Code: IONotSupported, Err: unix.ENOTSUP}
}

func (s withoutDescriptor) TakeOrigin() (o route.Origin) {
	if from, ok := s.Source.(interface{ TakeOrigin() route.Origin }); ok {
		o = from.TakeOrigin()
	}
	return o
}

// syncSource syncs a source that can.
func (f *File) syncSource() error {
	s, ok := f.src.(withoutDescriptor).Source.(interface{ Sync() error })
	if !ok {
		return nil
	}
	return s.Sync()
}
