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

// patience is how long a client may take to say hello or to read the answer.
const patience = 10 * time.Second

// A Model is tensors in GPU memory. The Base of a tensor's span is the start of
// the allocation that it lies in.
type Model struct {
	Name     string
	Metadata map[string]string
	Tensors  []tensor.Tensor
}

// GPUs are the GPUs that a process sees.
type GPUs interface {
	Devices() ([]gpu.Info, error)
	// Device is a hold on GPU i that others use too: it is not closed here.
	Device(i int) (gpu.Device, error)
}

// A Server hands a model to whoever connects.
type Server struct {
	share   Share
	head    []byte // the two messages of the answer
	tensors []byte
	buffers []buffer
	files   []*os.File // by buffer, where they are shared by descriptor
	served  atomic.Int64
}

// A buffer is an allocation that tensors lie in.
type buffer struct {
	dev  gpu.Device
	base gpu.Addr
	size uint64
}

// NewServer prepares to hand out a model. To be shared by descriptor its memory
// must be of gpu.KindVirtual. The memory stays the caller's.
func NewServer(m *Model, gpus GPUs, share Share) (*Server, error) {
	s := &Server{share: share}
	if err := s.arrange(m, gpus); err != nil {
		return nil, err
	}
	if share == ByCopy {
		return s, nil
	}
	for _, b := range s.buffers {
		f, err := b.dev.Export(b.base, b.size, gpu.ExportPosixFD)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("sharing %d bytes of gpu:%d: %w", b.size, b.dev.Info().Index, err)
		}
		s.files = append(s.files, f)
	}
	return s, nil
}

// arrange finds the allocations behind the tensors and writes the answer.
func (s *Server) arrange(m *Model, gpus GPUs) (err error) {
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
			// What is mapped elsewhere must be mapped whole, so the size is the
			// allocation's, not that of the tensors in it.
			p, err := dev.Pointer(a.base)
			if err != nil {
				return err
			}
			n = len(s.buffers)
			index[a] = n
			s.buffers = append(s.buffers, buffer{dev, a.base, p.Size})
		}
		if end := t.Span.Off + t.Span.Len; end > s.buffers[n].size {
			return fmt.Errorf("tensor %q ends at %d of an allocation of %d bytes", t.Name, end, s.buffers[n].size)
		}
		tensors = append(tensors, wireTensor{t.Name, t.Dtype, t.Shape, n, t.Span.Off, t.Span.Len})
	}
	if len(s.buffers) > maxBuffers {
		return fmt.Errorf("the model lies in %d allocations, and one message carries %d: load it into one for each GPU", len(s.buffers), maxBuffers)
	}
	for _, b := range s.buffers {
		h.Buffers = append(h.Buffers, wireBuffer{b.dev.Info().UUID, b.size})
	}
	if s.head, err = encode(h); err != nil {
		return err
	}
	s.tensors, err = encode(tensors)
	return err
}

// inMemoryOrder sorts tensors by GPU and address. They come in the order in which
// they became ready, which means nothing and is another one each time.
func inMemoryOrder(tensors []tensor.Tensor) []*tensor.Tensor {
	sorted := make([]*tensor.Tensor, len(tensors))
	for i := range tensors {
		sorted[i] = &tensors[i]
	}
	slices.SortFunc(sorted, func(a, b *tensor.Tensor) int {
		return cmp.Or(cmp.Compare(a.Span.Dev, b.Span.Dev), cmp.Compare(a.Span.Base, b.Span.Base),
			cmp.Compare(a.Span.Off, b.Span.Off), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// Served is how many clients have got the model.
func (s *Server) Served() int64 { return s.served.Load() }

// Serve answers clients until ctx ends, which is no error, and closes the
// listener.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	return s.serve(ctx, l.AcceptUnix)
}

// breather is how long a holder waits when it has no descriptors left.
const breather = 100 * time.Millisecond

func (s *Server) serve(ctx context.Context, accept func() (*net.UnixConn, error)) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		c, err := accept()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case transient(err):
			select {
			case <-ctx.Done():
			case <-time.After(breather):
			}
			continue
		case err != nil:
			return err
		}
		clients.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			_ = s.client(ctx, c) // a client that went away is no concern of the others
		})
	}
}

// transient reports that a client could not be let in for want of something that
// will be there again: no reason to let go of a model.
func transient(err error) bool {
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM},
		func(e error) bool { return errors.Is(err, e) })
}

// client answers one client.
func (s *Server) client(ctx context.Context, c *net.UnixConn) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var h hello
	files, err := receive(c, &h, maxHello)
	closeAll(files) // nobody asked for any
	if err != nil {
		return err
	}
	if err := h.check("the client"); err != nil {
		return refuse(c, err)
	}
	files = s.files
	if s.share == ByCopy {
		copies, err := copyOut(ctx, s.buffers)
		defer closeAll(copies)
		if err != nil {
			return refuse(c, err)
		}
		files = copies
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	s.served.Add(1) // first, so that a client that has the model has been counted
	err = send(c, s.head, files)
	if err == nil {
		err = send(c, s.tensors, nil)
	}
	if err != nil {
		s.served.Add(-1)
	}
	return err
}

// refuse tells a client why it gets nothing.
func refuse(c *net.UnixConn, why error) error {
	text, err := encode(head{hello: hello{protocol, Version}, Error: why.Error()})
	if err == nil {
		err = send(c, text, nil)
	}
	return errors.Join(why, err)
}

// Close lets go of the descriptors. Clients keep what they have mapped.
func (s *Server) Close() {
	closeAll(s.files)
	s.files = nil
}
