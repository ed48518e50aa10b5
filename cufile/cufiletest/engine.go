package cufiletest

import (
	"context"
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// An Engine is an implementation of cuFile. A CUDA context is current on the
// thread that calls it.
type Engine interface {
	Register(fd int) (Handle, error)
	RegisterBuffer(base gpu.Addr, n uint64) error
	DeregisterBuffer(base gpu.Addr) error
	// Code is the number inside an error: a CUfileOpError or an errno.
	Code(error) int
	Close() error
}

// A Handle is a registered file.
type Handle interface {
	Read(base gpu.Addr, n uint64, off, buf int64) (int64, error)
	Write(base gpu.Addr, n uint64, off, buf int64) (int64, error)
	Close() error
}

// Culvert is the engine that is tested. Where only is not None, transfers to
// device memory must go by that route.
func Culvert(drv *cufile.Driver, only route.ID) Engine { return culvert{drv, only} }

type culvert struct {
	drv  *cufile.Driver
	only route.ID
}

func (c culvert) Register(fd int) (Handle, error) {
	f, err := c.drv.RegisterFD(fd)
	if err != nil {
		return nil, err
	}
	if c.only != route.None {
		if err := f.Require(0, c.only); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return culvertFile{c, f}, nil
}

func (c culvert) RegisterBuffer(base gpu.Addr, n uint64) error {
	_, err := c.drv.RegisterBuffer(base, n)
	return err
}

// DeregisterBuffer knows the one case that Go's API does not have: no buffer
// has the address 0.
func (c culvert) DeregisterBuffer(base gpu.Addr) error {
	if base == 0 {
		return cufile.InvalidValue
	}
	b, err := c.drv.Buffer(base)
	if err != nil {
		return err
	}
	return b.Close()
}

func (c culvert) Code(err error) int { return int(cufile.CodeOf(err)) }

func (c culvert) Close() error { return c.drv.Close() }

type culvertFile struct {
	eng culvert
	f   *cufile.File
}

func (h culvertFile) Read(base gpu.Addr, n uint64, off, buf int64) (int64, error) {
	r, err := h.f.ReadAt(context.Background(), gpu.Span{Base: base, Off: uint64(buf), Len: n}, off)
	return r.Bytes, errors.Join(err, h.check(&r, err))
}

func (h culvertFile) Write(base gpu.Addr, n uint64, off, buf int64) (int64, error) {
	r, err := h.f.WriteAt(context.Background(), gpu.Span{Base: base, Off: uint64(buf), Len: n}, off)
	return r.Bytes, errors.Join(err, h.check(&r, err))
}

func (h culvertFile) Close() error { return h.f.Close() }

// check holds a receipt against itself and against the route that was forced.
func (h culvertFile) check(r *route.Receipt, err error) error {
	var sum int64
	for _, n := range r.By {
		sum += n
	}
	switch {
	case err != nil || r.Bytes == 0:
		return nil
	case sum != r.Bytes:
		return fmt.Errorf("the receipt has %d bytes, %d by route: %v", r.Bytes, sum, r)
	case r.By[r.Route] == 0:
		return fmt.Errorf("the receipt names a route that moved nothing: %v", r)
	case h.eng.only != route.None && r.By[h.eng.only] != r.Bytes:
		return fmt.Errorf("not all bytes went by %v: %v", h.eng.only, r)
	}
	return nil
}
