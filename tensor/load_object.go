package tensor

import (
	"context"
	"errors"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// maxUnread is how many bytes of an object are read only to complete the checksum of
// the store: headers, and tensors that a plan leaves out.
const maxUnread = 16 << 20

// openObject opens an object for reads over a driver's routes.
func openObject(drv *cufile.Driver, url string) (*objectReader, error) {
	o, err := object.Open(object.Context(), url)
	if err != nil {
		return nil, err
	}
	h, err := drv.RegisterSource(o)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &objectReader{cufileReader{h, drv}, o}, nil
}

// An objectReader is a cufileReader whose source is an object.
type objectReader struct {
	cufileReader
	object *object.File
}

// read ends the requests if ctx ends: the ring waits for its sources.
func (r *objectReader) read(ctx context.Context, segments []segment) (route.Receipt, error) {
	defer context.AfterFunc(ctx, r.object.Abort)()
	rec, err := r.cufileReader.read(ctx, segments)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return rec, err
}

func (r *objectReader) start(int64, int64) error { return nil }

func (r *objectReader) Close() error { return closeObject(r.object, r.cufileReader.Close) }

// closeObject ends the use of an object of which tensors were read: its checksum is
// compared if little is missing.
func closeObject(o *object.File, handle func() error) error {
	err := handle()
	if cerr := o.CheckRest(maxUnread); err == nil {
		err = cerr
	}
	return errors.Join(err, o.Close())
}

// A hostObjectReader reads an object into host memory.
type hostObjectReader struct{ *object.File }

func openHostObject(url string) (reader, error) {
	o, err := object.Open(object.Context(), url)
	if err != nil {
		return nil, err
	}
	return hostObjectReader{o}, nil
}

func (hostObjectReader) direct(int) bool                       { return false }
func (hostObjectReader) start(int64, int64) error              { return nil }
func (hostObjectReader) setCache(route.CacheMode, int64) error { return nil }
func (r hostObjectReader) Close() error {
	return closeObject(r.File, func() error { return nil })
}

func (r hostObjectReader) read(ctx context.Context, segments []segment) (route.Receipt, error) {
	defer context.AfterFunc(ctx, r.Abort)()
	rec, err := readHost(ctx, r, segments)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	rec.Origin = r.TakeOrigin()
	return rec, err
}
