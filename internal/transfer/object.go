package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// Download copies an object to dst through GPU memory, as Copy does for files. The new
// file gets its name when all bytes are on stable storage and, if the store has a
// checksum, have been compared with it.
func Download(ctx context.Context, drv *cufile.Driver, url, dst string, o Options) (res Result, err error) {
	src, err := object.Open(ctx, url)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	res = Result{Source: src.Name(), Dest: dst, GPU: o.GPU}
	out, err := replace(dst)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	return res, downloadTo(ctx, drv, src, out, &o, &res)
}

// downloadTo copies an object to a new file and gives that its name.
func downloadTo(ctx context.Context, drv *cufile.Driver, src *object.File, out *replacement, o *Options, res *Result) error {
	if err := pour(ctx, drv, src, src.Info().Size, out.File.File, *o, res); err != nil {
		return err
	}
	if err := out.sync(); err != nil {
		return err
	}
	if o.Verify {
		if err := res.verify(ctx, src, out.File); err != nil {
			return err
		}
	}
	return out.Commit()
}

// A Loaded is an object that was read into GPU memory and nothing else.
type Loaded struct {
	Source  string         `json:"source"`
	GPU     int            `json:"gpu"`
	Seconds float64        `json:"seconds"`
	Read    *route.Receipt `json:"read"`
}

// String draws the path of the data and prints the receipt.
func (l Loaded) String() string {
	return l.Read.Diagram(l.Source, fmt.Sprintf("gpu:%d", l.GPU)) + l.Read.Sentence() + "\n"
}

// Fields is the receipt with every field.
func (l Loaded) Fields() string { return l.Read.String() }

// IntoGPU reads an object, all of it at once, into memory of a GPU, and frees that
// memory again.
func IntoGPU(ctx context.Context, drv *cufile.Driver, url string, o Options) (res Loaded, err error) {
	src, err := object.Open(ctx, url)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	from, err := drv.RegisterSource(src)
	if err != nil {
		return res, err
	}
	defer from.Close()
	if err := o.require(from); err != nil {
		return res, err
	}
	size := uint64(src.Info().Size)
	res = Loaded{Source: src.Name(), GPU: o.GPU, Read: &route.Receipt{Dir: route.Read, Machine: drv.Machine()}}
	dev, err := drv.Device(o.GPU)
	if err != nil || size == 0 {
		return res, err
	}
	addr, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, dev.Free(addr)) }()
	if err := drv.Prepare(o.GPU); err != nil {
		return res, err
	}
	defer context.AfterFunc(ctx, src.Abort)()
	start := time.Now()
	err = o.readAll(ctx, from, gpu.Span{Dev: o.GPU, Base: addr, Len: size}, res.Read)
	res.Seconds = time.Since(start).Seconds()
	if err == nil && uint64(res.Read.Bytes) != size {
		err = fmt.Errorf("read %s: %d of %d bytes: %w", src.Name(), res.Read.Bytes, size, io.ErrUnexpectedEOF)
	}
	return res, err
}

// readAll fills memory from the beginning of a source: at once, or in pieces that keep
// to the limit.
func (o *Options) readAll(ctx context.Context, from *cufile.File, mem gpu.Span, sum *route.Receipt) error {
	for off := uint64(0); off < mem.Len; {
		n := uint64(o.Limit.Largest(int64(mem.Len-off), gpuPage))
		if err := o.Limit.Wait(ctx, int64(n)); err != nil {
			return err
		}
		r, err := from.ReadAt(ctx, mem.Slice(off, n), int64(off))
		sum.Add(&r)
		if err != nil || uint64(r.Bytes) != n {
			return err
		}
		off += n
	}
	return nil
}
