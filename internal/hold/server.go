package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

const (
	// clientTimeout is how long a client may take to say hello or to read the answer.
	clientTimeout = 10 * time.Second
	// retryDelay is how long a server without free descriptors waits, and a client
	// whose server has a full queue.
	retryDelay = 100 * time.Millisecond
	// maxClients is how many clients are answered at a time. Others wait in the
	// socket's queue, at most clientTimeout if all of these are slow.
	maxClients = 256
)

// A Model is tensors in GPU memory. The Base of a tensor's span is the start of its
// allocation.
type Model struct {
	Name     string
	Metadata map[string]string
	Tensors  []tensor.Tensor
}

// GPUs are the GPUs that a process sees.
type GPUs interface {
	Devices() ([]gpu.Info, error)
	// Device returns an open GPU, which this package does not close.
	Device(i int) (gpu.Device, error)
}

// A Server shares a model with every client.
type Server struct {
	share   Share
	head    []byte // the two messages of the answer
	tensors []byte
	buffers []buffer
	served  atomic.Int64

	mu    sync.Mutex
	files []*os.File // by buffer; a copy is made for the first client
}

// A buffer is an allocation with tensors.
type buffer struct {
	dev  gpu.Device
	base gpu.Addr
	size uint64
}

// NewServer prepares to serve a model. To be shared by descriptor its memory must be
// of gpu.KindVirtual. The caller keeps the memory.
func NewServer(m *Model, gpus GPUs, share Share) (*Server, error) {
	s := &Server{share: share}
	if err := s.prepare(m, gpus); err != nil {
		return nil, err
	}
	if share == ByCopy {
		return s, nil
	}
	for _, b := range s.buffers {
		f, err := b.dev.Export(b.base, b.size, gpu.ExportPosixFD)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("share %d bytes of gpu:%d: %w", b.size, b.dev.Info().Index, err)
		}
		s.files = append(s.files, f)
	}
	return s, nil
}

// prepare finds the allocations of the tensors and encodes the answer.
func (s *Server) prepare(m *Model, gpus GPUs) (err error) {
	h := head{hello: hello{protocol, Version}, Model: m.Name, Metadata: m.Metadata, Share: s.share}
	tensors := make([]wireTensor, 0, len(m.Tensors))
	type allocation struct {
		dev  int
		base gpu.Addr
	}
	index := map[allocation]int{}
	for _, t := range inMemoryOrder(m.Tensors) {
		a := allocation{t.Span.Dev, t.Span.Base}
		n, ok := index[a]
		if !ok {
			dev, err := gpus.Device(a.dev)
			if err != nil {
				return err
			}
			// Clients must map all of an allocation, so the size is not that of its
			// tensors.
			p, err := dev.Pointer(a.base)
			if err != nil {
				return err
			}
			n = len(s.buffers)
			index[a] = n
			s.buffers = append(s.buffers, buffer{dev, a.base, p.Size})
			h.Buffers = append(h.Buffers, wireBuffer{dev.Info().UUID, p.Size})
		}
		if end := t.Span.Off + t.Span.Len; end > s.buffers[n].size {
			return fmt.Errorf("tensor %q ends at %d of an allocation of %d bytes", t.Name, end, s.buffers[n].size)
		}
		tensors = append(tensors, wireTensor{t.Name, t.Dtype, t.Shape, n, t.Span.Off, t.Span.Len})
	}
	if len(s.buffers) > maxBuffers {
		return fmt.Errorf("the model has %d allocations, and one message carries %d (fix: use one allocation per GPU)", len(s.buffers), maxBuffers)
	}
	if s.head, err = encode(h); err != nil {
		return err
	}
	s.tensors, err = encode(tensors)
	return err
}

// inMemoryOrder sorts tensors by GPU and address. They come in the order in which
// they became ready, which differs between loads.
func inMemoryOrder(tensors []tensor.Tensor) []tensor.Tensor {
	return slices.SortedFunc(slices.Values(tensors), func(a, b tensor.Tensor) int {
		return cmp.Or(cmp.Compare(a.Span.Dev, b.Span.Dev), cmp.Compare(a.Span.Base, b.Span.Base),
			cmp.Compare(a.Span.Off, b.Span.Off), cmp.Compare(a.Name, b.Name))
	})
}

// Served returns how many clients have got the model.
func (s *Server) Served() int64 { return s.served.Load() }

// Serve answers clients until ctx ends, which is not an error, and closes the
// listener.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	return s.serve(ctx, l.AcceptUnix)
}

func (s *Server) serve(ctx context.Context, accept func() (*net.UnixConn, error)) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	places := make(chan struct{}, maxClients)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := accept()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case transient(err):
			select {
			case <-ctx.Done():
			case <-time.After(retryDelay):
			}
			<-places
			continue
		case err != nil:
			return err
		}
		clients.Go(func() {
			defer func() { <-places }()
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			_ = s.client(ctx, c) // an error of one client does not concern others
		})
	}
}

// transient reports that accept failed for lack of a resource that will be free
// again: no reason to stop serving.
func transient(err error) bool {
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM},
		func(e error) bool { return errors.Is(err, e) })
}

// client answers one client.
func (s *Server) client(ctx context.Context, c *net.UnixConn) error {
	if err := c.SetDeadline(time.Now().Add(clientTimeout)); err != nil {
		return err
	}
	var h hello
	files, err := receive(c, &h, maxHello)
	closeAll(files) // none are expected
	if err != nil {
		return err
	}
	// After the hello, which a client sends before it reads why it gets nothing.
	if err := checkClient(c); err != nil {
		return reject(c, err)
	}
	if err := h.check("the client"); err != nil {
		return reject(c, err)
	}
	files, err = s.shared(ctx)
	if err != nil {
		return reject(c, err)
	}
	if err := c.SetDeadline(time.Now().Add(clientTimeout)); err != nil {
		return err
	}
	s.served.Add(1) // first, so that a client that has the model is counted
	err = send(c, s.head, files)
	if err == nil {
		err = send(c, s.tensors, nil)
	}
	if err != nil {
		s.served.Add(-1)
	}
	return err
}

// shared returns the descriptors that clients get. All clients get the same copy,
// which is made when the first one asks.
func (s *Server) shared(ctx context.Context) ([]*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.share == ByCopy && s.files == nil {
		files, err := copyOut(ctx, s.buffers)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		s.files = files
	}
	return s.files, nil
}

// reject sends a client the reason why it gets nothing.
func reject(c *net.UnixConn, why error) error {
	text, err := encode(head{hello: hello{protocol, Version}, Error: why.Error()})
	if err == nil {
		err = send(c, text, nil)
	}
	return errors.Join(why, err)
}

// Close closes the descriptors. Clients keep what they have mapped.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.files)
	s.files = nil
}
