package ladder

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// hostChunk is how much the host route stages at a time: enough that the launch of
// a copy to the GPU does not dominate.
const hostChunk = 1 << 20

// hostPage is the alignment of staging memory, sufficient for O_DIRECT anywhere.
const hostPage = 4096

// A hostRoute reads into host memory and copies, or the reverse. It accepts every
// request and is the reference for all other routes. Memory that the CPU can reach
// is read and written in place.
type hostRoute struct {
	basic
	copies copier
	pool   sync.Pool // of *[]byte, hostChunk long, page aligned
}

func newHost(dev gpu.Device) *hostRoute {
	h := &hostRoute{copies: copier{dev: dev}}
	h.pool.New = func() any {
		b := alignedBytes(hostChunk, hostPage)
		return &b
	}
	return h
}

// Traits accepts every source and request.
func (h *hostRoute) Traits(Source) (Traits, *route.Decline) {
	return Traits{ID: route.Host, Reads: true, Writes: true, HostMemory: true}, nil
}

// State has nothing to add.
func (h *hostRoute) State(*Op) State { return State{} }

// Run stages one chunk after the other.
func (h *hostRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	bufp := h.pool.Get().(*[]byte)
	defer h.pool.Put(bufp)
	for i := range ops {
		if err := h.run(ctx, &ops[i], &res[i], *bufp); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the streams of the copies.
func (h *hostRoute) Close() error { return h.copies.close() }

func (h *hostRoute) run(ctx context.Context, op *Op, r *route.Receipt, buf []byte) error {
	for done := uint64(0); done < op.Mem.Len; {
		if err := ctx.Err(); err != nil {
			return err
		}
		off := op.Off + int64(done)
		n, err := h.chunk(op, buf[:min(uint64(len(buf)), op.Mem.Len-done)], off, op.Mem.Addr()+gpu.Addr(done), r)
		r.Bytes += int64(n)
		r.Host.Bytes += int64(n)
		done += uint64(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return op.failAt(off+int64(n), "", err)
		}
	}
	return nil
}

// chunk moves len(stage) bytes, through stage if the CPU cannot reach the memory.
// The kernel finds a wild host pointer: EFAULT.
func (h *hostRoute) chunk(op *Op, stage []byte, off int64, addr gpu.Addr, r *route.Receipt) (int, error) {
	switch {
	case op.Kind.OnDevice() && op.Dir == route.Read:
		n, err := h.read(op, stage, off, r)
		if n > 0 {
			if cerr := h.copies.in(op, addr, stage[:n]); cerr != nil {
				return 0, cerr
			}
		}
		return n, err
	case op.Kind.OnDevice():
		if err := h.copies.out(op, stage, addr); err != nil {
			return 0, err
		}
		return op.Src.WriteAt(stage, off)
	}
	mem := gpu.HostBytes(addr, uint64(len(stage)))
	if op.Dir == route.Read {
		return h.read(op, mem, off, r)
	}
	// The caller's memory need not be aligned for O_DIRECT.
	if f := op.file(); f != nil {
		return pwriteBuffered(f, mem, off)
	}
	return op.Src.WriteAt(mem, off)
}

// read reads through the page cache, or around it where the file must not fill it.
func (h *hostRoute) read(op *Op, p []byte, off int64, r *route.Receipt) (int, error) {
	f := op.file()
	if f == nil {
		return op.Src.ReadAt(p, off)
	}
	why := f.Reads().Spares(int64(op.Mem.Len))
	if f.Direct() < 0 || f.Buffered() < 0 || why == storage.NotBypassed || h.fillsBehindEnd(op, off, len(p)) {
		n, err := op.Src.ReadAt(p, off)
		r.Cache.Unasked += int64(n)
		return n, err
	}
	if there, err := f.Resident(off, int64(len(p))); err == nil && there == int64(len(p)) {
		n, err := op.Src.ReadAt(p, off)
		r.Cache.Hit += int64(n)
		return n, err
	}
	n, err := h.readAround(op, p, off)
	if errors.Is(err, unix.EINVAL) { // unaligned memory of the caller, or no O_DIRECT after all
		n, err = op.Src.ReadAt(p, off)
		r.Cache.Unasked += int64(n)
		return n, err
	}
	r.Cache.Bypassed += int64(n)
	r.Cache.Why = why
	return n, err
}

// fillsBehindEnd reports a range that ends behind the file and in memory of the caller:
// with O_DIRECT the kernel writes all of the last block there.
func (h *hostRoute) fillsBehindEnd(op *Op, off int64, n int) bool {
	if op.Kind.OnDevice() {
		return false
	}
	size, err := op.file().Size()
	return err != nil || off+int64(n) > size
}

// readAround reads with O_DIRECT. The caller's own memory is left to the kernel, which
// finds a wild pointer.
func (h *hostRoute) readAround(op *Op, p []byte, off int64) (int, error) {
	f := op.file()
	if op.Kind.OnDevice() && !f.Facts.Direct.Aligned(off, int64(len(p))) {
		return preadAligned(f, p, off)
	}
	n, err := directRead(f, p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}
