package tensor

import (
	"context"
	"errors"
	"io"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// An engine is what a load needs of a machine.
type engine interface {
	open(path string) (reader, error)
	// device returns an open GPU, which the load must not close.
	device(i int) (gpu.Device, error)
	register(span gpu.Span) (io.Closer, error)
	// prepare makes what reads to a GPU need, and returns when the first byte could be
	// moved.
	prepare(device int) error
}

// A reader is an open file. It is safe for concurrent use.
type reader interface {
	// read fills all segments and returns one receipt for them. Fewer bytes
	// without an error mean that the file ended.
	read(ctx context.Context, segments []segment) (route.Receipt, error)
	// direct reports whether a drive can fill registered memory of a GPU with
	// bytes of the file, without host memory.
	direct(device int) bool
	// setCache says how the file uses the page cache, as one of files from which total
	// bytes are read.
	setCache(mode route.CacheMode, total int64) error
	// start tells the storage what will be read first, and does not wait for it.
	start(off, n int64) error
	Close() error
}

// A segment is a range of a file and the memory that it goes to.
type segment struct {
	off int64
	dst gpu.Span
}

// A cufileEngine loads through a cuFile session.
type cufileEngine struct {
	drv     *cufile.Driver
	require func(*cufile.File) error // sets the required route; may be nil
}

// requireOn requires a route or better ones of a file, on each of the GPUs.
func requireOn(f *cufile.File, devices []int, id route.ID) error {
	for _, dev := range devices {
		if err := f.RequireAtLeast(dev, id); err != nil {
			return err
		}
	}
	return nil
}

func (e cufileEngine) device(i int) (gpu.Device, error) { return e.drv.Device(i) }

func (e cufileEngine) register(s gpu.Span) (io.Closer, error) {
	return e.drv.RegisterBuffer(s.Addr(), s.Len)
}

func (e cufileEngine) open(path string) (reader, error) {
	if object.IsURL(path) {
		r, err := openObject(e.drv, path)
		if err != nil {
			return nil, err
		}
		return e.required(r, r.File)
	}
	f, err := atomicfile.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	// The registered file has a descriptor of its own.
	defer f.Close()
	h, err := e.drv.Register(f)
	if err != nil {
		return nil, err
	}
	return e.required(&cufileReader{h, e.drv}, h)
}

// required sets the required route of an open file, or closes it.
func (e cufileEngine) required(r reader, f *cufile.File) (reader, error) {
	if e.require == nil {
		return r, nil
	}
	if err := e.require(f); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

type cufileReader struct {
	*cufile.File
	drv *cufile.Driver
}

func (r *cufileReader) direct(device int) bool {
	p, err := r.Plan(device)
	return err == nil && p.Uses[0].Direct && p.Uses[0].Registered
}

func (e cufileEngine) prepare(i int) error { return e.drv.Prepare(i) }

func (r *cufileReader) start(off, n int64) error { return r.StartReading(off, n) }

func (r *cufileReader) setCache(mode route.CacheMode, total int64) error {
	return r.SetCache(mode, total)
}

func (r *cufileReader) read(ctx context.Context, segments []segment) (route.Receipt, error) {
	if len(segments) == 1 {
		return r.ReadAt(ctx, segments[0].dst, segments[0].off)
	}
	reqs := make([]cufile.Request, len(segments))
	res := make([]route.Receipt, len(segments))
	for i, s := range segments {
		reqs[i] = cufile.Request{Dir: route.Read, File: r.File, Mem: s.dst, Off: s.off}
	}
	err := r.drv.Do(ctx, reqs, res)
	var sum route.Receipt
	for i := range res {
		if i > 0 {
			res[i].Time = 0 // they ran together
		}
		sum.Add(&res[i])
	}
	return sum, err
}
