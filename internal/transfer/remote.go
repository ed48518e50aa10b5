package transfer

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/route"
)

// A Remote is an end of a copy that is no file of this host's kernel: a file of another
// host, a drive without a file system.
type Remote interface {
	abortable
	Size() (int64, error)
	// Fresh reports whether what is not written is zero. Otherwise holes are written, too.
	Fresh() bool
	// Sum reads n bytes from the beginning again and returns their CRC-32C.
	Sum(ctx context.Context, n int64) (uint32, error)
	// Commit publishes what was written.
	Commit(ctx context.Context) error
	// Close ends the use. A file that was written and not committed is removed; a file
	// that was read must not have changed.
	Close(ctx context.Context) error
}

// An abortable source can end its reads and writes early.
type abortable interface {
	cufile.Source
	Abort()
}

// Fetch copies a Remote to the file dst through GPU memory, as Copy does. It closes from.
func Fetch(ctx context.Context, drv *cufile.Driver, from Remote, dst string, o Options) (res Result, err error) {
	res = Result{Source: from.Name(), Dest: dst, GPU: o.GPU}
	closed := false
	defer func() {
		if !closed {
			_ = from.Close(context.WithoutCancel(ctx))
		}
	}()
	size, err := from.Size()
	if err != nil {
		return res, err
	}
	out, err := replace(dst)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	if err := pour(ctx, drv, from, size, out.File.File, o, &res); err != nil {
		return res, err
	}
	if err := out.sync(); err != nil {
		return res, err
	}
	if o.Verify {
		sum := func(n int64) (uint32, error) { return from.Sum(ctx, n) }
		if err := res.verifyHere(ctx, out.File, false, sum); err != nil {
			return res, err
		}
	}
	closed = true
	if err := from.Close(ctx); err != nil {
		return res, err
	}
	return res, out.Commit()
}

// pour copies all of a source into a new file.
func pour(ctx context.Context, drv *cufile.Driver, src abortable, size int64, out *os.File, o Options, res *Result) error {
	to, err := drv.Register(out)
	if err != nil {
		return err
	}
	defer to.Close()
	p := pump{to: to, size: size, data: solid(size), o: &o, flush: &flusher{fd: int(out.Fd()), sync: unix.SyncFileRange}, res: res}
	return p.between(ctx, drv, src, to, func(far *cufile.File) { p.from = far })
}

// Push copies the file src to a Remote through GPU memory. It closes to.
func Push(ctx context.Context, drv *cufile.Driver, src string, to Remote, o Options) (res Result, err error) {
	res = Result{Source: src, Dest: to.Name(), GPU: o.GPU}
	defer func() { err = errors.Join(err, to.Close(context.WithoutCancel(ctx))) }()
	from, err := openFile(drv, src)
	if err != nil {
		return res, err
	}
	defer from.Close()
	p := pump{from: from, size: from.info.Size(), data: solid(from.info.Size()), o: &o, res: &res}
	if to.Fresh() {
		p.data = &extents{fd: int(from.os.Fd()), size: p.size}
	}
	if err := p.between(ctx, drv, to, from.File, func(far *cufile.File) { p.to = far }); err != nil {
		return res, err
	}
	if o.Verify {
		sum := func(n int64) (uint32, error) { return to.Sum(ctx, n) }
		if err := res.verifyHere(ctx, from.os, true, sum); err != nil {
			return res, err
		}
	}
	if err := from.unchanged(src); err != nil {
		return res, err
	}
	return res, to.Commit(ctx)
}

// between runs a pump between a source and a file. set gets the registered source.
func (p *pump) between(ctx context.Context, drv *cufile.Driver, src abortable, file *cufile.File, set func(*cufile.File)) error {
	far, err := drv.RegisterSource(src)
	if err != nil {
		return err
	}
	defer far.Close()
	set(far)
	if err := p.o.require(far); err != nil {
		return err
	}
	if err := p.o.ofFile().require(file); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, src.Abort)()
	err = p.copy(ctx, drv)
	p.res.Holes = p.size - p.res.Bytes
	return err
}

// ofFile are the options of the file at the other end of a source: a route that only
// sources have is required of the source alone.
func (o Options) ofFile() *Options {
	for _, id := range []*route.ID{&o.Route, &o.Require} {
		if *id == route.NVMe || *id == route.RDMA {
			*id = route.None
		}
	}
	return &o
}
