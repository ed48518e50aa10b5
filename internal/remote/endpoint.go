package remote

import (
	"context"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// An Endpoint is a file of a server as one end of a copy, with a window for the GPU
// memory between both ends.
type Endpoint struct {
	*File
	Client  *Client
	Machine route.Machine
	window  *Window
}

// Map makes GPU memory reachable for ReadAt and WriteAt.
func (e *Endpoint) Map(dev gpu.Device, span gpu.Span) (err error) {
	e.window, err = e.Client.Window(dev, span)
	return err
}

// Unmap ends that.
func (e *Endpoint) Unmap() error { return e.window.Close() }

// Plan is how data moves: by an adapter, or staged.
func (e *Endpoint) Plan() *route.Plan {
	if e.window.Direct() {
		return &route.Plan{Uses: []route.Use{{Route: route.RDMA, Direct: true}}}
	}
	return &route.Plan{Uses: []route.Use{{Route: route.Host}}, Declined: []*route.Decline{e.window.Declined}}
}

// ReadAt fills mapped GPU memory from the file.
func (e *Endpoint) ReadAt(ctx context.Context, mem gpu.Span, off int64) (route.Receipt, error) {
	r, err := e.move(ctx, route.Read, mem, off)
	if err == nil && e.window.Direct() {
		err = e.window.dev.FlushWrites(gpu.ScopeOwner)
	}
	return r, err
}

// WriteAt writes mapped GPU memory into the file.
func (e *Endpoint) WriteAt(ctx context.Context, mem gpu.Span, off int64) (route.Receipt, error) {
	return e.move(ctx, route.Write, mem, off)
}

// move moves data and writes the receipt. Staged data crosses host memory, whatever the
// provider; without staging an adapter has moved it.
func (e *Endpoint) move(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (route.Receipt, error) {
	start, lost := time.Now(), e.Client.Lost()
	n, err := e.Move(ctx, part{e.window, mem}, off)
	r := route.Receipt{Dir: dir, Machine: e.Machine, Provider: e.Client.Provider(), Bytes: n, Retries: e.Client.Lost() - lost, Time: time.Since(start)}
	if r.Route = route.RDMA; e.window.Direct() {
		r.Host.Evidence = route.Inferred
	} else {
		r.Route = route.Host
		r.Host.Bytes = n
		r.Declined[route.RDMA] = e.window.Declined // as Plan says
	}
	r.By[r.Route] = n
	return r, err
}
