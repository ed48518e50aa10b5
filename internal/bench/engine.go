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

// An engine moves blocks: Culvert, or a baseline that it is compared with.
type engine struct {
	name string
	// caller prepares the calling thread, with memory for its requests.
	caller func(mem gpu.Span) (*caller, error)
	close  func()
}

// A caller is one thread of a run. Its functions are not called concurrently.
type caller struct {
	// do moves the blocks at offs and adds to sum.
	do    func(ctx context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error
	close func()
}

// oneByOne is a caller that moves the blocks of a batch sequentially.
func oneByOne(mem gpu.Span, move func(dir route.Dir, mem gpu.Span, off int64) (int64, error), close func()) *caller {
	do := func(_ context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error {
		for i, off := range offs {
			n, err := move(dir, mem.Slice(uint64(int64(i)*block), uint64(block)), off)
			sum.Bytes += n
			if err != nil {
				return err
			}
		}
		return nil
	}
	return &caller{do, close}
}

// culvertEngine is Culvert over one required route, or over the one it chooses, by calls
// that wait or in streams.
func (b *Bench) culvertEngine(m Method, register bool) (*engine, error) {
	drv, dev := b.drv, b.dev
	files, close, err := b.register()
	if err != nil {
		return nil, err
	}
	e := &engine{name: "culvert", close: close}
	if m.Async {
		e.name += "/async"
	}
	if m.Route != route.None {
		for _, f := range files {
			if err := f.Require(dev.Info().Index, m.Route); err != nil {
				close()
				return nil, err
			}
		}
		e.name += "/" + m.Route.String()
	}
	e.caller = func(mem gpu.Span) (*caller, error) {
		release := func() {}
		if register {
			buf, err := drv.RegisterBuffer(mem.Addr(), mem.Len)
			if err != nil {
				return nil, err
			}
			mem, release = buf.Span(), func() { buf.Close() }
		}
		if m.Async {
			return newAsyncCaller(dev, files, mem, release)
		}
		c := &culvertCaller{drv: drv, files: files, mem: mem}
		return &caller{c.do, release}, nil
	}
	return e, nil
}

type culvertCaller struct {
	drv   *cufile.Driver
	files []*cufile.File
	mem   gpu.Span
	reqs  []cufile.Request
	res   []route.Receipt
}

func (c *culvertCaller) do(ctx context.Context, dir route.Dir, offs []int64, block int64, sum *route.Receipt) error {
	if len(offs) == 1 {
		return c.one(ctx, dir, offs[0], block, sum)
	}
	c.reqs = c.reqs[:0]
	for i, off := range offs {
		file, at := stripe(len(c.files), off, block)
		c.reqs = append(c.reqs, cufile.Request{Dir: dir, File: c.files[file], Mem: c.mem.Slice(uint64(int64(i)*block), uint64(block)), Off: at})
	}
	if len(c.res) < len(offs) {
		c.res = make([]route.Receipt, len(offs))
	}
	err := c.drv.Do(ctx, c.reqs, c.res)
	for i := range offs {
		sum.Add(&c.res[i])
	}
	return err
}

func (c *culvertCaller) one(ctx context.Context, dir route.Dir, off, block int64, sum *route.Receipt) error {
	file, at := stripe(len(c.files), off, block)
	move := c.files[file].ReadAt
	if dir == route.Write {
		move = c.files[file].WriteAt
	}
	r, err := move(ctx, c.mem.Slice(0, uint64(block)), at)
	sum.Add(&r)
	return err
}

// libcufileEngine is NVIDIA's library, called from threads with a current context.
func (b *Bench) libcufileEngine(path string, register bool) (*engine, error) {
	unbind, err := b.dev.Bind()
	if err != nil {
		return nil, err
	}
	defer unbind()
	lib, err := vendor.Open(path)
	if err != nil {
		return nil, err
	}
	v := &vendorFiles{dev: b.dev, lib: lib, registers: register}
	for _, t := range b.targets {
		h, err := lib.Register(int(t.file.Fd()))
		if err != nil {
			v.close()
			return nil, fmt.Errorf("%w (NVIDIA's libcufile needs a udev record of the file's block device)", err)
		}
		v.handles = append(v.handles, h)
	}
	return &engine{"libcufile", v.prepare, v.close}, nil
}

// vendorFiles are the files as NVIDIA's library has them.
type vendorFiles struct {
	dev       gpu.Device
	lib       *vendor.Library
	handles   []*vendor.Handle
	registers bool // the memory of callers
}

func (v *vendorFiles) close() {
	for _, h := range v.handles {
		h.Close()
	}
	v.lib.Close()
}

// prepare makes a caller on its own thread.
func (v *vendorFiles) prepare(mem gpu.Span) (*caller, error) {
	unbind, err := v.dev.Bind()
	if err != nil {
		return nil, err
	}
	if v.registers {
		if err := v.lib.RegisterBuffer(mem.Addr(), mem.Len); err != nil {
			unbind()
			return nil, err
		}
	}
	mem = gpu.Span{Dev: mem.Dev, Base: mem.Addr(), Len: mem.Len}
	return oneByOne(mem, v.move, func() {
		if v.registers {
			v.lib.DeregisterBuffer(mem.Base)
		}
		unbind()
	}), nil
}

func (v *vendorFiles) move(dir route.Dir, mem gpu.Span, off int64) (int64, error) {
	file, at := stripe(len(v.handles), off, int64(mem.Len))
	if dir == route.Read {
		return v.handles[file].Read(mem, at)
	}
	return v.handles[file].Write(mem, at)
}

// A blockIO moves one block between a file or object and host memory, or less at its end.
type blockIO func(dir route.Dir, p []byte, off int64) (int64, error)

func (b *Bench) blockIO() blockIO {
	return func(dir route.Dir, p []byte, off int64) (int64, error) {
		file, at := stripe(len(b.targets), off, int64(len(p)))
		return b.targets[file].move(dir, p, at)
	}
}

// preadEngine is what a program without a library does: pread into host memory,
// then a synchronous copy to the GPU.
func preadEngine(io blockIO, dev gpu.Device) *engine {
	prepare := func(mem gpu.Span) (*caller, error) {
		var buf []byte // of one block
		move := func(dir route.Dir, mem gpu.Span, off int64) (int64, error) {
			if buf == nil {
				buf = make([]byte, mem.Len)
			}
			if dir == route.Write {
				if err := dev.CopyOut(buf, mem.Addr()); err != nil {
					return 0, err
				}
				return io(dir, buf, off)
			}
			n, err := io(dir, buf, off)
			if err != nil {
				return 0, err
			}
			return n, dev.CopyIn(mem.Addr(), buf[:n])
		}
		return oneByOne(mem, move, func() {}), nil
	}
	return &engine{"pread", prepare, func() {}}
}

// memoryEngine reads into host memory and writes from it, without the GPU: the
// time that any route takes on which the CPU touches the data.
func memoryEngine(io blockIO) *engine {
	prepare := func(mem gpu.Span) (*caller, error) {
		buf, err := unix.Mmap(-1, 0, int(mem.Len), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
		if err != nil {
			return nil, fmt.Errorf("allocate %d bytes of host memory: %w", mem.Len, err)
		}
		move := func(dir route.Dir, block gpu.Span, off int64) (int64, error) {
			at := block.Addr() - mem.Addr()
			return io(dir, buf[at:][:block.Len], off)
		}
		return oneByOne(mem, move, func() { unix.Munmap(buf) }), nil
	}
	return &engine{"memory", prepare, func() {}}
}

// fileIO moves one block between a file and host memory, or less at its end.
func fileIO(f *os.File, dir route.Dir, p []byte, off int64) (int64, error) {
	call := unix.Pread
	if dir == route.Write {
		call = unix.Pwrite
	}
	n, err := transferAll(call, int(f.Fd()), f.Name(), p, off)
	if err == io.EOF {
		err = nil
	}
	return int64(n), err
}

// transferAll calls pread or pwrite until all is moved or the file ends: one call
// moves at most 2 GiB.
func transferAll(call func(int, []byte, int64) (int, error), fd int, name string, p []byte, off int64) (done int, err error) {
	for done < len(p) {
		n, err := call(fd, p[done:], off+int64(done))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL:
			return done, fmt.Errorf("%s: %d bytes at offset %d: %w (O_DIRECT needs whole sectors: change --bs, or omit --direct)", name, len(p), off, err)
		case err != nil:
			return done, fmt.Errorf("%s: %d bytes at offset %d: %w", name, len(p), off, err)
		case n == 0:
			return done, io.EOF
		}
		done += n
	}
	return done, nil
}
