package bench

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/vendor"
	"github.com/culvert-io/culvert/route"
)

// An engine moves blocks: Culvert, or a peer that it is compared with.
type engine interface {
	name() string
	// caller prepares one thread with memory for its requests.
	caller(mem gpu.Span) (caller, error)
	close()
}

// A caller is one thread of a run. Its methods are not called concurrently.
type caller interface {
	// do moves the blocks at offs and adds to sum.
	do(ctx context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error
	close()
}

// culvert is the product, by the ladder or by one required route.
type culvert struct {
	drv  *cufile.Driver
	file *cufile.File
	only route.ID
	reg  bool
}

func newCulvert(drv *cufile.Driver, f *os.File, dev int, only route.ID, register bool) (engine, error) {
	h, err := drv.Register(f)
	if err != nil {
		return nil, err
	}
	if only != route.None {
		if err := h.Require(dev, only); err != nil {
			h.Close()
			return nil, err
		}
	}
	return &culvert{drv, h, only, register}, nil
}

func (c *culvert) name() string {
	if c.only != route.None {
		return "culvert/" + c.only.String()
	}
	return "culvert"
}

func (c *culvert) close() { c.file.Close() }

func (c *culvert) caller(mem gpu.Span) (caller, error) {
	t := &culvertCaller{c: c, mem: mem}
	if c.reg {
		buf, err := c.drv.RegisterBuffer(mem.Addr(), mem.Len)
		if err != nil {
			return nil, err
		}
		t.buf = buf
		t.mem = buf.Span()
	}
	return t, nil
}

type culvertCaller struct {
	c    *culvert
	mem  gpu.Span
	buf  *cufile.Buffer
	reqs []cufile.Request
	res  []route.Receipt
}

func (t *culvertCaller) do(ctx context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error {
	if len(offs) == 1 {
		return t.one(ctx, dir, offs[0], block, sum)
	}
	t.reqs = t.reqs[:0]
	for i, off := range offs {
		t.reqs = append(t.reqs, cufile.Request{Dir: dir, File: t.c.file, Mem: t.mem.Slice(uint64(int64(i)*block), uint64(block)), Off: off})
	}
	if len(t.res) < len(offs) {
		t.res = make([]route.Receipt, len(offs))
	}
	err := t.c.drv.Do(ctx, t.reqs, t.res)
	for i := range offs {
		sum.Add(&t.res[i])
	}
	return err
}

func (t *culvertCaller) one(ctx context.Context, dir route.Dir, off, block int64, sum *route.Receipt) error {
	var r route.Receipt
	var err error
	if dir == route.Read {
		r, err = t.c.file.ReadAt(ctx, t.mem.Slice(0, uint64(block)), off)
	} else {
		r, err = t.c.file.WriteAt(ctx, t.mem.Slice(0, uint64(block)), off)
	}
	sum.Add(&r)
	return err
}

func (t *culvertCaller) close() {
	if t.buf != nil {
		t.buf.Close()
	}
}

// libcufile is NVIDIA's library, called from threads with a current context.
type libcufile struct {
	lib *vendor.Library
	h   *vendor.Handle
	dev gpu.Device
	reg bool
}

func newLibcufile(dev gpu.Device, f *os.File, path string, register bool) (engine, error) {
	if path == "" {
		var err error
		if path, err = vendor.Find(); err != nil {
			return nil, err
		}
	}
	unbind, err := dev.Bind()
	if err != nil {
		return nil, err
	}
	defer unbind()
	lib, err := vendor.Open(path)
	if err != nil {
		return nil, err
	}
	h, err := lib.Register(int(f.Fd()))
	if err != nil {
		lib.Close()
		return nil, fmt.Errorf("%w (NVIDIA's libcufile wants a udev record for the file's block device)", err)
	}
	return &libcufile{lib, h, dev, register}, nil
}

func (l *libcufile) name() string { return "libcufile" }

func (l *libcufile) close() {
	l.h.Close()
	l.lib.Close()
}

func (l *libcufile) caller(mem gpu.Span) (caller, error) {
	unbind, err := l.dev.Bind()
	if err != nil {
		return nil, err
	}
	base := mem.Addr()
	if l.reg {
		if err := l.lib.RegisterBuffer(base, mem.Len); err != nil {
			unbind()
			return nil, err
		}
	}
	return &libcufileCaller{l, gpu.Span{Dev: mem.Dev, Base: base, Len: mem.Len}, unbind}, nil
}

type libcufileCaller struct {
	l      *libcufile
	mem    gpu.Span
	unbind func()
}

func (t *libcufileCaller) do(_ context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error {
	for i, off := range offs {
		mem := t.mem.Slice(uint64(int64(i)*block), uint64(block))
		var n int64
		var err error
		if dir == route.Read {
			n, err = t.l.h.Read(mem, off)
		} else {
			n, err = t.l.h.Write(mem, off)
		}
		if err != nil {
			return err
		}
		sum.Bytes += n
	}
	return nil
}

func (t *libcufileCaller) close() {
	if t.l.reg {
		t.l.lib.DeregisterBuffer(t.mem.Base)
	}
	t.unbind()
}

// pread is what a person writes by hand: pread into memory, then a synchronous
// copy, one block after the other.
type pread struct {
	f   *os.File
	dev gpu.Device
}

func (p *pread) name() string { return "pread" }
func (p *pread) close()       {}

func (p *pread) caller(mem gpu.Span) (caller, error) {
	return &preadCaller{p, mem, nil}, nil
}

type preadCaller struct {
	p   *pread
	mem gpu.Span
	buf []byte
}

func (t *preadCaller) do(_ context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error {
	if t.buf == nil {
		t.buf = make([]byte, block)
	}
	for i, off := range offs {
		addr := t.mem.Slice(uint64(int64(i)*block), uint64(block)).Addr()
		n, err := t.move(dir, addr, off)
		sum.Bytes += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *preadCaller) move(dir route.Dir, addr gpu.Addr, off int64) (int, error) {
	fd, name := int(t.p.f.Fd()), t.p.f.Name()
	if dir == route.Read {
		n, err := transferAll(unix.Pread, fd, name, t.buf, off)
		if err != nil && err != io.EOF {
			return 0, err
		}
		return n, t.p.dev.CopyIn(addr, t.buf[:n])
	}
	if err := t.p.dev.CopyOut(t.buf, addr); err != nil {
		return 0, err
	}
	return transferAll(unix.Pwrite, fd, name, t.buf, off)
}

// transferAll calls pread or pwrite until all is there or the file ends: one call
// moves 2 GiB at most.
func transferAll(call func(int, []byte, int64) (int, error), fd int, name string, p []byte, off int64) (done int, err error) {
	for done < len(p) {
		n, err := call(fd, p[done:], off+int64(done))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL:
			return done, fmt.Errorf("%s: %d bytes at offset %d: %w (O_DIRECT wants whole sectors: choose another --bs, or leave out --direct)", name, len(p), off, err)
		case err != nil:
			return done, fmt.Errorf("%s: %d bytes at offset %d: %w", name, len(p), off, err)
		case n == 0:
			return done, io.EOF
		}
		done += n
	}
	return done, nil
}

func (t *preadCaller) close() {}
