package transfer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

const (
	// objectJobs hides the time that a store takes to answer: a request per object is
	// all that small ones need.
	objectJobs = 32
	// listedSize is the size up to which an object is read by one request, whose answer
	// has its checksum. For larger ones the store is asked before they are read.
	listedSize = 4 << 20
	// gpuWindow is the GPU memory of a job. A larger object goes through it in parts.
	gpuWindow = 64 << 20
)

// An objectTreeCopy is a running copy.
type objectTreeCopy struct {
	tree *ObjectTree
	drv  *cufile.Driver
	opts TreeOptions
	dir  *objectDir // if the destination is one

	mu   sync.Mutex
	res  TreeResult
	errs []error
}

// Copy copies the objects in parallel. One that cannot be copied does not stop the
// others. A rerun with PlanOptions.Update resumes: files get the times of their objects.
func (t *ObjectTree) Copy(ctx context.Context, drv *cufile.Driver, o TreeOptions) (*TreeResult, error) {
	if o.Jobs <= 0 {
		o.Jobs = objectJobs
		if t.to == toStore {
			o.Jobs = objectJobs / uploads
		}
	}
	c := &objectTreeCopy{tree: t, drv: drv, opts: o}
	c.res = TreeResult{
		Source: t.Source, Dest: t.Dest, GPU: o.GPU, Skipped: t.Skipped, Same: t.Unchanged,
	}
	c.opts.setCalls()
	start := time.Now()
	if c.res.Read, c.res.Write = receipts(drv); t.to == toGPU {
		c.res.Write = nil
	}
	err := c.copy(ctx)
	c.res.took(time.Since(start))
	c.res.Verified = o.Verify && err == nil
	return &c.res, err
}

func (c *objectTreeCopy) copy(ctx context.Context) error {
	switch c.tree.to {
	case toGPU:
		return c.run(ctx, c.intoGPU)
	case toStore:
		return c.run(ctx, c.intoStore)
	}
	return c.intoDir(ctx)
}

// run starts the jobs, which take files until there are no more.
func (c *objectTreeCopy) run(ctx context.Context, job func(ctx context.Context, next <-chan *ObjectFile) error) error {
	next := make(chan *ObjectFile)
	g, gctx := errgroup.WithContext(ctx)
	for range min(c.opts.Jobs, len(c.tree.Files)) {
		g.Go(func() error { return job(gctx, next) })
	}
	g.Go(func() error {
		defer close(next)
		for i := range c.tree.Files {
			select {
			case next <- &c.tree.Files[i]:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
		}
		return nil
	})
	err := g.Wait()
	c.dir.publishRest()
	if ctx.Err() == nil {
		err = errors.Join(append(slices.Clone(c.errs), err)...)
	}
	if err != nil {
		return &StoppedError{Files: c.res.Files, Of: len(c.tree.Files), Err: err}
	}
	return nil
}

// each copies files with one function and counts them.
func (c *objectTreeCopy) each(ctx context.Context, next <-chan *ObjectFile, copy func(f *ObjectFile, o Options) (Result, error)) error {
	for f := range next {
		res, err := c.opts.watched(&f.TreeFile, func(o Options) (*Result, error) {
			res, err := copy(f, o)
			return &res, err
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.count(res, err)
	}
	return nil
}

func (c *objectTreeCopy) count(res *Result, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	c.res.add(res)
}

func (c *objectTreeCopy) open(ctx context.Context, f *ObjectFile) (*object.File, error) {
	url := object.Join(c.tree.url, f.Path)
	if f.Size <= listedSize {
		return object.OpenListed(ctx, url, f.info)
	}
	return object.Open(ctx, url)
}

// intoGPU is a job that reads objects into GPU memory of its own.
func (c *objectTreeCopy) intoGPU(ctx context.Context, next <-chan *ObjectFile) (err error) {
	dev, err := c.drv.Device(c.opts.GPU)
	if err != nil {
		return err
	}
	var mem gpu.Span
	free := func() error {
		if mem.Len == 0 {
			return nil
		}
		return dev.Free(mem.Base)
	}
	defer func() { err = errors.Join(err, free()) }()
	return c.each(ctx, next, func(f *ObjectFile, o Options) (res Result, err error) {
		if need := uint64(min(f.Size, gpuWindow)); need > mem.Len {
			if err := free(); err != nil {
				return res, err
			}
			mem = gpu.Span{Dev: c.opts.GPU}
			if mem.Base, err = dev.Alloc(gpu.KindDevice, need, 0); err != nil {
				return res, err
			}
			mem.Len = need
		}
		return c.read(ctx, f, mem, &o)
	})
}

// read reads an object into GPU memory, part by part if it is larger.
func (c *objectTreeCopy) read(ctx context.Context, f *ObjectFile, mem gpu.Span, o *Options) (res Result, err error) {
	src, err := c.open(ctx, f)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	from, err := c.drv.RegisterSource(src)
	if err != nil {
		return res, err
	}
	defer from.Close()
	if err := o.require(from); err != nil {
		return res, err
	}
	defer context.AfterFunc(ctx, src.Abort)()
	res.Read = &route.Receipt{Dir: route.Read, Machine: c.drv.Machine()}
	for size := src.Info().Size; res.Bytes < size; {
		part := mem
		part.Len = uint64(o.Limit.Largest(min(int64(mem.Len), size-res.Bytes), gpuPage))
		if err := o.Limit.Wait(ctx, int64(part.Len)); err != nil {
			return res, err
		}
		rec, err := from.ReadAt(ctx, part, res.Bytes)
		if err == nil && uint64(rec.Bytes) != part.Len {
			err = fmt.Errorf("read %s: %d of %d bytes at %d", src.Name(), rec.Bytes, part.Len, res.Bytes)
		}
		if err != nil {
			return res, err
		}
		res.Read.Add(&rec)
		if res.Bytes += rec.Bytes; o.Advance != nil {
			o.Advance(res.Bytes, size)
		}
	}
	return res, nil
}

// intoStore is a job that uploads files.
func (c *objectTreeCopy) intoStore(ctx context.Context, next <-chan *ObjectFile) error {
	return c.each(ctx, next, func(f *ObjectFile, o Options) (Result, error) {
		return UploadFile(ctx, c.drv, filepath.Join(c.tree.Source, f.Path), object.Join(c.tree.url, f.Path), o)
	})
}
