package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// uploads is how many parts of an object are sent at a time. Each has its own GPU
// memory and pinned memory.
const uploads = 4

// UploadFile copies the file src to an object through GPU memory. The object appears as
// a whole, after its last byte, or not at all.
func UploadFile(ctx context.Context, drv *cufile.Driver, src, url string, o Options) (res Result, err error) {
	res = Result{Source: src, Dest: url, GPU: o.GPU}
	from, err := openFile(drv, src)
	if err != nil {
		return res, err
	}
	defer from.Close()
	if err := o.require(from.File); err != nil {
		return res, err
	}
	size := from.info.Size()
	up, err := object.Create(ctx, url, size, false)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, up.Discard(ctx)) }()
	res.Read, res.Write = receipts(drv)
	start := time.Now()
	if err := (&uploader{drv: drv, from: from.File, up: up, size: size, o: &o, res: &res}).run(ctx); err != nil {
		return res, err
	}
	if err := from.unchanged(src); err != nil {
		return res, err
	}
	if err := up.Commit(ctx); err != nil {
		return res, err
	}
	res.Seconds = time.Since(start).Seconds()
	res.Write.Time, res.Write.Origin = time.Since(start), up.TakeOrigin()
	if !o.Verify {
		return res, nil
	}
	there, err := object.Open(ctx, url) // it is read again
	if err != nil {
		return res, err
	}
	return res, errors.Join(res.verify(ctx, from.os, there), there.Close())
}

// An uploader sends the parts of a file.
type uploader struct {
	drv  *cufile.Driver
	from *cufile.File
	up   *object.Upload
	size int64
	o    *Options
	res  *Result
}

func (u *uploader) run(ctx context.Context) error {
	dev, err := u.drv.Device(u.o.GPU)
	if err != nil || u.size == 0 {
		return err
	}
	part := u.up.Part()
	n := (u.size + part - 1) / part
	next, moved := make(chan int64), make(chan route.Receipt)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(next)
		for k := range n {
			select {
			case next <- k * part:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	workers, wctx := errgroup.WithContext(ctx) // one that fails stops the others
	for range min(uploads, n) {
		workers.Go(func() error {
			return u.worker(wctx, dev, next, moved)
		})
	}
	g.Go(func() error {
		defer close(moved)
		return workers.Wait()
	})
	for r := range moved {
		u.count(&r)
	}
	return g.Wait()
}

// count adds one part to the receipts.
func (u *uploader) count(r *route.Receipt) {
	u.res.Read.Add(r)
	w := u.res.Write
	w.Bytes += r.Bytes
	w.Host.Bytes += r.Bytes
	w.By[route.Ring] += r.Bytes
	w.Route = route.Ring
	if u.res.Bytes += r.Bytes; u.o.Advance != nil {
		u.o.Advance(u.res.Bytes, u.size)
	}
}

// worker moves parts: file, GPU, pinned memory, store.
func (u *uploader) worker(ctx context.Context, dev gpu.Device, next <-chan int64, moved chan<- route.Receipt) (err error) {
	part := uint64(min(u.up.Part(), u.size))
	mem, err := dev.Alloc(gpu.KindDevice, part, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Free(mem)) }()
	host, err := dev.Alloc(gpu.KindHost, part, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Free(host)) }()
	for off := range next {
		n := min(part, uint64(u.size-off))
		if err := u.o.Limit.Wait(ctx, int64(n)); err != nil {
			return err
		}
		r, err := u.from.ReadAt(ctx, gpu.Span{Dev: u.o.GPU, Base: mem, Len: n}, off)
		if err != nil {
			return err
		}
		if uint64(r.Bytes) != n {
			return fmt.Errorf("%s: the file was truncated during the copy", u.from.Name())
		}
		p := gpu.HostBytes(host, n)
		if err := dev.CopyOut(p, mem); err != nil {
			return err
		}
		if err := u.up.Write(ctx, p, off); err != nil {
			return err
		}
		moved <- r
	}
	return nil
}
