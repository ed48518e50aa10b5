package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/route"
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

// A Window is GPU memory that the server reaches: directly, or through slots in pinned
// host memory.
type Window struct {
	dev  gpu.Device
	span gpu.Span
	mr   rdma.MR
	// Declined says why the memory is not reached directly; nil if it is.
	Declined *route.Decline

	stage gpu.Addr // slots; 0 if the memory is registered itself
	slot  uint64
	free  chan uint64 // offsets of slots
}

// stageSlot is the size of a slot: the chunk of a server with default settings.
const stageSlot = 1 << 20

const windowAccess = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead

// Window makes GPU memory reachable: as memory of a peer device, as a dma-buf, or
// staged. It must be closed before the memory is freed and the client is closed.
func (c *Client) Window(dev gpu.Device, span gpu.Span) (*Window, error) {
	w := &Window{dev: dev, span: span}
	err := w.direct(c)
	if err == nil {
		return w, nil
	}
	w.Declined = &route.Decline{
		Route: route.RDMA, Test: "registration",
		Evidence: fmt.Sprintf("provider %s does not register GPU memory: %v", c.Provider(), err),
		Fix:      "culvert check lists NICs and what they need",
	}
	return w, w.staged(c)
}

// direct registers the memory itself.
func (w *Window) direct(c *Client) error {
	if err := w.dev.SetSyncMemops(w.span.Base, true); err != nil {
		return err
	}
	mr, err := c.pd.Register(rdma.Address(w.span.Addr(), w.span.Len), windowAccess)
	if err == nil {
		w.mr = mr
		return nil
	}
	f, xerr := w.dev.Export(w.span.Addr(), w.span.Len, gpu.ExportDMABuf)
	if xerr != nil {
		return fmt.Errorf("%w; no dma-buf: %w", err, xerr)
	}
	defer f.Close()
	mr, xerr = c.pd.Register(rdma.DMABuf(f, 0, w.span.Len, uint64(w.span.Addr())), windowAccess)
	if xerr != nil {
		return fmt.Errorf("%w; %w", err, xerr)
	}
	w.mr = mr
	return nil
}

// staged registers slots of pinned memory, one for each task in flight.
func (w *Window) staged(c *Client) error {
	w.slot = stageSlot
	if own := uint64(c.cfg.Chunk); own != 0 {
		w.slot = min(w.slot, own)
	}
	n := uint64(c.cfg.Depth) * w.slot
	a, err := w.dev.Alloc(gpu.KindHost, n, 0)
	if err != nil {
		return fmt.Errorf("allocate %d bytes of pinned memory: %w", n, err)
	}
	if w.mr, err = c.pd.Register(rdma.Host(gpu.HostBytes(a, n)), windowAccess); err != nil {
		return errors.Join(err, w.dev.Free(a))
	}
	w.stage, w.free = a, make(chan uint64, c.cfg.Depth)
	for i := range uint64(c.cfg.Depth) {
		w.free <- i * w.slot
	}
	return nil
}

// Direct reports whether an adapter moves the data, without host memory.
func (w *Window) Direct() bool { return w.stage == 0 }

// Close deregisters the memory.
func (w *Window) Close() error {
	err := w.mr.Close()
	if w.stage != 0 {
		err = errors.Join(err, w.dev.Free(w.stage))
	}
	return err
}

// A part is a range of a window.
type part struct {
	w *Window
	gpu.Span
}

func (p part) Len() uint64 { return p.Span.Len }

func (p part) most() uint64 { return p.w.slot }

func (p part) lend(ctx context.Context, off, n uint64, write bool) (rdma.Key, func(bool) error, error) {
	w, addr := p.w, p.Addr()+gpu.Addr(off)
	if w.Direct() {
		at := w.mr.Addr() + uint64(addr-w.span.Addr())
		return rdma.Key{Addr: at, Len: n, RKey: w.mr.RKey()}, func(bool) error { return nil }, nil
	}
	var slot uint64
	select {
	case slot = <-w.free:
	case <-ctx.Done():
		return rdma.Key{}, nil, context.Cause(ctx)
	}
	mem := gpu.HostBytes(w.stage+gpu.Addr(slot), n)
	if write {
		if err := w.dev.CopyOut(mem, addr); err != nil {
			w.free <- slot
			return rdma.Key{}, nil, err
		}
	}
	done := func(ok bool) error {
		defer func() { w.free <- slot }()
		if write || !ok {
			return nil
		}
		return w.dev.CopyIn(addr, mem)
	}
	return rdma.Key{Addr: w.mr.Addr() + slot, Len: n, RKey: w.mr.RKey()}, done, nil
}
