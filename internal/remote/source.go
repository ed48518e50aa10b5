package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A Source is a file of a server as one end of transfers, for cufile.RegisterSource. The
// network adapter moves bytes to and from registered GPU memory (route rdma), if it can
// be registered; ReadAt and WriteAt go through host memory. It is safe for concurrent
// use.
type Source struct {
	*File
	ctx    context.Context // of ReadAt and WriteAt
	cancel context.CancelFunc

	mu      sync.Mutex
	windows map[gpu.Addr]*window // by base
	staging *slots               // made at first use
	report  string               // how the last of the windows was registered
	lost    int                  // connections that receipts have
}

// NewSource makes a source of an open file. Close it before the client.
func NewSource(ctx context.Context, f *File) *Source {
	s := &Source{File: f, windows: map[gpu.Addr]*window{}, lost: f.c.Lost()}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// Name is the name at the server.
func (s *Source) Name() string { return s.name + " at " + s.c.Addr() }

// Size is the size in bytes.
func (s *Source) Size() (int64, error) { return s.size, nil }

// Route is route.RDMA.
func (s *Source) Route() route.ID { return route.RDMA }

// Path names provider and server.
func (s *Source) Path() string { return fmt.Sprintf("rdma %s %s", s.c.Provider(), s.c.Addr()) }

// Alignment is none: an adapter moves any range.
func (s *Source) Alignment() (block, memory uint64) { return 0, 1 }

// Map registers a buffer with the adapter.
func (s *Source) Map(dev gpu.Device, buf gpu.Span) (gpu.Span, error) {
	w, err := s.c.window(dev, buf)
	if err != nil {
		return gpu.Span{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows[buf.Base] = w
	s.report = w.region.Report()
	return buf, nil
}

// Unmap deregisters it.
func (s *Source) Unmap(buf gpu.Span) error {
	s.mu.Lock()
	w, ok := s.windows[buf.Base]
	delete(s.windows, buf.Base)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return w.region.Close()
}

// Move has the adapter move bytes to or from mapped memory.
func (s *Source) Move(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (int64, error) {
	s.mu.Lock()
	w, ok := s.windows[mem.Base]
	s.mu.Unlock()
	if !ok || mem.Addr() < w.span.Addr() || uint64(mem.Addr()-w.span.Addr())+mem.Len > w.span.Len {
		return 0, fmt.Errorf("%s: %v is not mapped", s.Name(), mem)
	}
	part := Range{MR: w.region, Off: uint64(mem.Addr() - w.span.Addr()), N: mem.Len}
	if dir == route.Write {
		if err := w.region.Ready(part.Off, part.N); err != nil {
			return 0, err
		}
		return s.move(ctx, true, part, off)
	}
	n, err := s.move(ctx, false, part, off)
	if err == nil {
		err = w.region.Arrived(part.Off, part.N)
	}
	return n, err
}

// ReadAt reads through host memory. An upload reads back what was written.
func (s *Source) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.through(p, off, false)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// WriteAt writes through host memory.
func (s *Source) WriteAt(p []byte, off int64) (int, error) { return s.through(p, off, true) }

func (s *Source) through(p []byte, off int64, write bool) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	stage, err := s.stage()
	if err != nil {
		return 0, err
	}
	n, err := s.move(s.ctx, write, staged{stage, p}, off)
	return int(n), err
}

func (s *Source) stage() (*slots, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.staging != nil {
		return s.staging, nil
	}
	var err error
	s.staging, err = s.c.slots()
	return s.staging, err
}

// Annotate adds the provider to a receipt, how GPU memory was registered if the adapter
// moved bytes, and connections that were made again.
func (s *Source) Annotate(r *route.Receipt) {
	now := s.c.Lost()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Provider = s.c.Provider()
	if r.By[route.RDMA] > 0 {
		r.Registration = s.report
	}
	r.Retries += now - s.lost
	s.lost = now
}

// Changed reports whether the server has another version of the file now. An upload has
// no other writer.
func (s *Source) Changed() bool {
	if s.upload {
		return false
	}
	now, err := s.c.Open(s.ctx, s.name)
	if err != nil {
		return true
	}
	return now.Close(s.ctx) != nil || now.tag != s.tag || now.size != s.size
}

// Abort ends ReadAt and WriteAt, also later ones.
func (s *Source) Abort() { s.cancel() }

// Fresh reports whether what is not written is zero: an upload is a new file.
func (s *Source) Fresh() bool { return s.upload }

// Sum is the CRC-32C of the file at the server, which reads it again.
func (s *Source) Sum(ctx context.Context, _ int64) (uint32, error) { return s.File.Sum(ctx) }

// Close closes the file, as File.Close does, and deregisters all memory. No transfer may
// be in flight.
func (s *Source) Close(ctx context.Context) error {
	s.cancel()
	errs := []error{s.File.Close(ctx)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.windows {
		errs = append(errs, w.region.Close())
	}
	clear(s.windows)
	if s.staging != nil {
		errs = append(errs, s.staging.mem.Close())
		s.staging = nil
	}
	return errors.Join(errs...)
}
