package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/route"
)

// unsized is the size of a stream for a pump: it ends when a read comes back short.
const unsized = math.MaxInt64

// The names of streams in results and messages.
const (
	inName  = "standard input"
	outName = "standard output"
)

// CopyIn copies a stream to the file dst through GPU memory, as Copy does: dst is
// replaced atomically, and an error of the stream leaves the old file.
func CopyIn(ctx context.Context, drv *cufile.Driver, in io.Reader, dst string, o Options) (res Result, err error) {
	res = Result{Source: inName, Dest: dst, GPU: o.GPU}
	if err := o.streamable(); err != nil {
		return res, err
	}
	out, err := replace(dst)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	sum, err := fillFrom(ctx, drv, in, out.File.File, o, &res)
	if err != nil {
		return res, err
	}
	if err := out.sync(); err != nil {
		return res, err
	}
	if o.Verify {
		if err := res.verifyHere(ctx, out.File, false, func(int64) (uint32, error) { return sum, nil }); err != nil {
			return res, err
		}
	}
	return res, out.Commit()
}

// fillFrom writes a stream to a file, and returns the CRC-32C of what it read.
func fillFrom(ctx context.Context, drv *cufile.Driver, in io.Reader, out *os.File, o Options, res *Result) (sum uint32, err error) {
	to, err := drv.Register(out)
	if err != nil {
		return 0, err
	}
	defer to.Close()
	if err := o.require(to); err != nil {
		return 0, err
	}
	from := &streamReader{stream: newStream(drv, inName), in: in}
	p := pump{from: from, to: to, size: unsized, o: &o, res: res, flush: &flusher{fd: int(out.Fd()), sync: unix.SyncFileRange}}
	err = p.pour(ctx, drv, from.stream)
	return from.sum, err
}

// CopyOut copies the file src to a stream through GPU memory. Holes become zeros.
func CopyOut(ctx context.Context, drv *cufile.Driver, src string, out io.Writer, o Options) (res Result, err error) {
	res = Result{Source: src, Dest: outName, GPU: o.GPU}
	if err := o.streamable(); err != nil {
		return res, err
	}
	from, err := openFile(drv, src)
	if err != nil {
		return res, err
	}
	defer from.Close()
	if err := errors.Join(from.SetCache(o.Cache, o.total), o.require(from.File)); err != nil {
		return res, err
	}
	to := &streamWriter{stream: newStream(drv, outName), out: out}
	p := pump{from: from, to: to, size: from.info.Size(), o: &o, res: &res}
	if err := p.pour(ctx, drv, to.stream); err != nil {
		return res, err
	}
	if err := from.unchanged(src); err != nil {
		return res, err
	}
	if o.Verify {
		return res, res.verifyHere(ctx, from.os, true, func(int64) (uint32, error) { return to.sum, nil })
	}
	return res, nil
}

// CopyThrough copies a stream to another through GPU memory.
func CopyThrough(ctx context.Context, drv *cufile.Driver, in io.Reader, out io.Writer, o Options) (res Result, err error) {
	res = Result{Source: inName, Dest: outName, GPU: o.GPU}
	if err := o.streamable(); err != nil {
		return res, err
	}
	from := &streamReader{stream: newStream(drv, inName), in: in}
	to := &streamWriter{stream: newStream(drv, outName), out: out}
	p := pump{from: from, to: to, size: unsized, o: &o, res: &res}
	if err := p.pour(ctx, drv, from.stream, to.stream); err != nil {
		return res, err
	}
	if o.Verify {
		return res, res.compare(from.sum, to.sum)
	}
	return res, nil
}

// pour runs a pump of which some ends are streams.
func (p *pump) pour(ctx context.Context, drv *cufile.Driver, streams ...*stream) error {
	p.data = solid(p.size)
	if advance := p.o.Advance; advance != nil && p.size == unsized {
		p.o.Advance = func(done, _ int64) { advance(done, -1) }
	}
	return p.copy(ctx, drv, streams...)
}

// streamable rejects required routes that streams do not have.
func (o *Options) streamable() error {
	for _, id := range []route.ID{o.Route, o.Require} {
		if id != route.None && id != route.Host {
			return fmt.Errorf("standard input and output go through host memory (fix: name a file): %w", &route.RequireError{Want: id, Got: route.Host})
		}
	}
	return nil
}
