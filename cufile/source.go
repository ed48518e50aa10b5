package cufile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A Source is storage without a descriptor: a file system in user space, an archive in
// memory. Transfers call it from several goroutines at once, with parts of the range in
// any order. An error that is a unix.Errno keeps its number; io.EOF is the end. A panic
// ends the program.
//
// A Source may also have the methods Size() (int64, error) and Sync() error, which
// those of the File call, and TakeOrigin() route.Origin, which goes into receipts: what
// its requests to a store did since the last call. Annotate(*route.Receipt) may add what
// else only the source knows of a transfer, such as its provider.
type Source interface {
	// Name is what messages and statistics call it.
	Name() string
	io.ReaderAt
	io.WriterAt
}

// A DirectSource is a Source with a device of its own that reaches GPU memory. That
// device is its best route: nvme for a drive without a file system ([nvme.Source]), rdma
// for a network adapter. What it does not reach, and unaligned ends, use ring and host.
// It may also have a method Changed() bool, which says whether others have changed its
// bytes since it was opened: otherwise a difference that a proof of arrival finds is taken
// for a lie of the device.
//
// [nvme.Source]: https://pkg.go.dev/github.com/culvert-io/culvert/nvme#Source
type DirectSource interface {
	Source
	Size() (int64, error)
	// Route is the route that the device is: route.NVMe or route.RDMA.
	Route() route.ID
	// Path names what is between the bytes and the GPU: a drive, a host. If the device
	// lies once, no source with the same path uses it any more.
	Path() string
	// Alignment is the unit of offsets and lengths, and that of memory addresses.
	Alignment() (block, memory uint64)
	// Map lets the device reach a registered buffer, and returns the part that it does
	// reach. Unmap ends that; no Move uses the buffer then.
	Map(dev gpu.Device, buf gpu.Span) (gpu.Span, error)
	Unmap(buf gpu.Span) error
	// Move has the device move bytes between the source at off and mapped memory. When it
	// returns, nothing touches the memory any more, and the GPU sees what was read.
	Move(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (int64, error)
}

// RegisterSource registers a source. Its bytes pass through host memory, by the ring and
// host routes, unless it is a DirectSource.
func (d *Driver) RegisterSource(s Source) (*File, error) {
	if s == nil {
		return nil, &Error{Op: "register", Object: "source", Code: InvalidValue, Err: errors.New("it is nil")}
	}
	if err := d.use(); err != nil {
		return nil, &Error{Op: "register", Object: s.Name(), Code: CodeOf(err), Err: err}
	}
	f := &File{drv: d, fd: -1, src: withoutDescriptor{s}}
	if direct, ok := s.(DirectSource); ok {
		f.src = &withDevice{DirectSource: direct}
	}
	if err := d.addFile(f); err != nil {
		return nil, err
	}
	d.log.Debug("cufile: register", "source", s.Name())
	return f, nil
}

// withoutDescriptor is a Source as the routes see it.
type withoutDescriptor struct{ Source }

func (s withoutDescriptor) File() *storage.File { return nil }

func (s withoutDescriptor) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.Source.ReadAt(p, off)
	return possible("read", len(p), n, err)
}

func (s withoutDescriptor) WriteAt(p []byte, off int64) (int, error) {
	n, err := s.Source.WriteAt(p, off)
	return possible("write", len(p), n, err)
}

// possible is the result of a source's method, or an error if no call can have moved so
// many bytes: routes use the count as it is.
func possible(op string, most, n int, err error) (int, error) {
	if n < 0 || n > most {
		return 0, fmt.Errorf("the source claims a %s of %d of %d bytes (fix: return a number from 0 to len(p))", op, n, most)
	}
	return n, err
}

func (s withoutDescriptor) Size() (int64, error) {
	if sized, ok := s.Source.(interface{ Size() (int64, error) }); ok {
		return sized.Size()
	}
	return 0, &Error{Op: "find the size of", Object: s.Name(), Code: IONotSupported, Err: unix.ENOTSUP}
}

// Annotate adds to a receipt what the source knows.
func (s withoutDescriptor) Annotate(r *route.Receipt) { annotate(s.Source, r) }

func annotate(s Source, r *route.Receipt) {
	if from, ok := s.(interface{ TakeOrigin() route.Origin }); ok {
		r.Origin = from.TakeOrigin()
	}
	if a, ok := s.(interface{ Annotate(*route.Receipt) }); ok {
		a.Annotate(r)
	}
}

// Sync syncs a source that can.
func (s withoutDescriptor) Sync() error { return syncSource(s.Source) }

func syncSource(s Source) error {
	if can, ok := s.(interface{ Sync() error }); ok {
		return can.Sync()
	}
	return nil
}

// withDevice is a DirectSource as the routes see it.
type withDevice struct {
	DirectSource

	mu      sync.Mutex
	closing []func()
}

var _ ladder.DirectSource = (*withDevice)(nil)

func (s *withDevice) File() *storage.File { return nil }

func (s *withDevice) ReadAt(p []byte, off int64) (int, error) {
	return withoutDescriptor{s.DirectSource}.ReadAt(p, off)
}

func (s *withDevice) WriteAt(p []byte, off int64) (int, error) {
	return withoutDescriptor{s.DirectSource}.WriteAt(p, off)
}

func (s *withDevice) Annotate(r *route.Receipt) { annotate(s.DirectSource, r) }
func (s *withDevice) Sync() error               { return syncSource(s.DirectSource) }

// Changed asks a source that knows.
func (s *withDevice) Changed() bool {
	c, ok := s.DirectSource.(interface{ Changed() bool })
	return ok && c.Changed()
}

// OnClose has f called when the File is closed.
func (s *withDevice) OnClose(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = append(s.closing, f)
}

func (s *withDevice) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.closing {
		f()
	}
	s.closing = nil
}
