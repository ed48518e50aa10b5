package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/rdma"
)

// Memory is what a transfer fills or empties.
type Memory interface {
	// Len is the number of bytes.
	Len() uint64
	// lend gives the server access to n bytes at off. For a write the bytes are there
	// when it returns; for a read, they are in place when done(true) returns.
	lend(ctx context.Context, off, n uint64, write bool) (key rdma.Key, done func(ok bool) error, err error)
	// most is how many bytes can be lent at once; 0 means all.
	most() uint64
}

// A Range is a part of a registered region.
type Range struct {
	MR  rdma.MR
	Off uint64
	N   uint64
}

// Len implements Memory.
func (r Range) Len() uint64 { return r.N }

func (r Range) most() uint64 { return 0 }

func (r Range) lend(_ context.Context, off, n uint64, _ bool) (rdma.Key, func(bool) error, error) {
	return rdma.Key{Addr: r.MR.Addr() + r.Off + off, Len: n, RKey: r.MR.RKey()}, func(bool) error { return nil }, nil
}

const windowAccess = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead

// A window is GPU memory that the server reaches.
type window struct {
	span   gpu.Span
	region *rdma.GPURegion
}

// window registers GPU memory: as memory of a peer device, or as a dma-buf.
func (c *Client) window(dev gpu.Device, span gpu.Span) (*window, error) {
	var o rdma.GPUOptions
	if c.cfg.Register != nil {
		o = c.cfg.Register(dev.Info())
	}
	o.Refuse = c.cfg.Refuse
	r, err := rdma.RegisterGPU(c.pd, dev, span.Addr(), span.Len, windowAccess, o)
	if err != nil {
		return nil, &windowError{c.Provider(), err}
	}
	c.cfg.Log("%d bytes of GPU memory registered by %s, provider=%s", span.Len, r.Report(), c.Provider())
	return &window{span, r}, nil
}

// A windowError is GPU memory that an adapter does not reach. Its text has the causes of
// all methods, each once.
type windowError struct {
	provider string
	err      error
}

func (e *windowError) Error() string {
	text := fmt.Sprintf("provider %s does not register GPU memory", e.provider)
	all, ok := errors.AsType[*rdma.GPUError](e.err)
	if !ok {
		return fmt.Sprintf("%s: %v", text, e.err)
	}
	for _, r := range all.Refused {
		if !strings.Contains(text, r.Cause) {
			text += fmt.Sprintf("; %s: %s", r.Method, r.Cause)
		}
	}
	return text
}

// Unwrap is the error of the registration.
func (e *windowError) Unwrap() error { return e.err }

// slots are registered host memory through which any memory of the process is filled and
// emptied: a slot for each task in flight.
type slots struct {
	mem  *endpoint.Memory
	size uint64
	free chan uint64 // offsets
}

// slotSize is the size of a slot: the chunk of a server with default settings.
const slotSize = 1 << 20

// slots allocates and registers host memory.
func (c *Client) slots() (s *slots, err error) {
	s = &slots{size: slotSize, free: make(chan uint64, c.cfg.Depth)}
	if own := uint64(c.cfg.Chunk); own != 0 {
		s.size = min(s.size, own)
	}
	if s.mem, err = endpoint.NewMemory(c.pd, c.cfg.Depth*int(s.size), windowAccess); err != nil {
		return nil, err
	}
	for i := range uint64(c.cfg.Depth) {
		s.free <- i * s.size
	}
	return s, nil
}

// A staged is memory of the process that is moved through slots.
type staged struct {
	*slots
	p []byte
}

// Len implements Memory.
func (s staged) Len() uint64 { return uint64(len(s.p)) }

func (s staged) most() uint64 { return s.size }

func (s staged) lend(ctx context.Context, off, n uint64, write bool) (rdma.Key, func(bool) error, error) {
	var at uint64
	select {
	case at = <-s.free:
	case <-ctx.Done():
		return rdma.Key{}, nil, context.Cause(ctx)
	}
	slot, part := s.mem.Bytes[at:at+n], s.p[off:off+n]
	if write {
		copy(slot, part)
	}
	done := func(ok bool) error {
		if !write && ok {
			copy(part, slot)
		}
		s.free <- at
		return nil
	}
	return rdma.Key{Addr: s.mem.Addr() + at, Len: n, RKey: s.mem.RKey()}, done, nil
}
