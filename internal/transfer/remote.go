package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/route"
)

// A Remote is a file of another host.
type Remote interface {
	reader
	writer
	// Size is the number of bytes.
	Size() int64
	// Map makes GPU memory reachable for ReadAt and WriteAt, Unmap ends that.
	Map(dev gpu.Device, mem gpu.Span) error
	Unmap() error
	// Plan tells how data moves between that memory and the other host.
	Plan() *route.Plan
	// Sum reads the file again and returns its CRC-32C.
	Sum(ctx context.Context) (uint32, error)
	// Commit publishes a file that was written.
	Commit(ctx context.Context) error
	// Close ends the use. A file that was written and not committed is removed; a file
	// that was read must not have changed.
	Close(ctx context.Context) error
}

// errOneRoute says why a copy between hosts has no single route.
var errOneRoute = errors.New("a copy between hosts takes one route to the other host and another to the file (fix: --require-route)")

// Fetch copies a file of another host to dst through GPU memory, as Copy does. source
// is its name in messages. It closes from.
func Fetch(ctx context.Context, drv *cufile.Driver, from Remote, source, dst string, o Options) (res Result, err error) {
	res = Result{Source: source, Dest: dst, GPU: o.GPU}
	closed := false
	defer func() {
		if !closed {
			_ = from.Close(context.WithoutCancel(ctx))
		}
	}()
	if o.Route != route.None {
		return res, errOneRoute
	}
	out, err := replace(dst)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	if err := fetch(ctx, drv, from, out.File.File, &o, &res); err != nil {
		return res, err
	}
	if err := out.sync(); err != nil {
		return res, err
	}
	if o.Verify {
		if err := verifyRemote(ctx, from, out.File.File, &res); err != nil {
			return res, err
		}
	}
	closed = true
	if err := from.Close(ctx); err != nil {
		return res, err
	}
	return res, out.Commit()
}

func fetch(ctx context.Context, drv *cufile.Driver, from Remote, out *os.File, o *Options, res *Result) error {
	to, err := drv.Register(out)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := o.require(to); err != nil {
		return err
	}
	p := pump{from: from, to: to, data: solid(from.Size()), flush: &flusher{fd: int(out.Fd()), sync: unix.SyncFileRange}}
	return p.between(ctx, drv, from, o, res)
}

// Push copies the file src to another host through GPU memory. dest is its name there
// in messages. It closes to.
func Push(ctx context.Context, drv *cufile.Driver, src string, to Remote, dest string, o Options) (res Result, err error) {
	res = Result{Source: src, Dest: dest, GPU: o.GPU}
	defer func() { err = errors.Join(err, to.Close(context.WithoutCancel(ctx))) }()
	if o.Route != route.None {
		return res, errOneRoute
	}
	in, err := atomicfile.OpenRegular(src)
	if err != nil {
		return res, err
	}
	defer in.Close()
	from, err := drv.Register(in)
	if err != nil {
		return res, err
	}
	defer from.Close()
	if err := o.require(from); err != nil {
		return res, err
	}
	p := pump{from: from, to: to, data: &extents{fd: int(in.Fd()), size: to.Size()}}
	if err := p.between(ctx, drv, to, &o, &res); err != nil {
		return res, err
	}
	if o.Verify {
		if err := verifyRemote(ctx, to, in, &res); err != nil {
			return res, err
		}
	}
	return res, to.Commit(ctx)
}

// between runs a pump of which one end is on another host.
func (p *pump) between(ctx context.Context, drv *cufile.Driver, far Remote, o *Options, res *Result) (err error) {
	if o.step == nil {
		o.step = func() {}
	}
	p.size, p.o, p.res = far.Size(), o, res
	if err := p.open(drv); err != nil {
		return err
	}
	defer p.close()
	if err := far.Map(p.dev, p.buf.Span()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.Unmap()) }()
	if o.Require != route.None {
		if err := far.Plan().Require(o.Require); err != nil {
			return err
		}
	}
	res.Read = &route.Receipt{Dir: route.Read, Machine: drv.Machine()}
	res.Write = &route.Receipt{Dir: route.Write, Machine: drv.Machine()}
	start := time.Now()
	err = p.run(ctx)
	res.Holes = p.size - res.Bytes
	res.Seconds = time.Since(start).Seconds()
	return err
}

// verifyRemote compares the file here with the one there, which both ends read again.
func verifyRemote(ctx context.Context, far Remote, here *os.File, res *Result) error {
	want, _, err := crc32c.File(ctx, here)
	if err != nil {
		return err
	}
	got, err := far.Sum(ctx)
	if err != nil {
		return err
	}
	res.CRC32C = fmt.Sprintf("%08x", got)
	if got != want {
		return fmt.Errorf("%s has CRC-32C %08x, the file on the other host has %08x: %w", here.Name(), want, got, ErrDiffers)
	}
	res.Verified = true
	return nil
}
