package route

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
)

// hostChunk is how much the host route stages at a time: large enough that the
// copy into the GPU is not dominated by its launch.
const hostChunk = 1 << 20

// hostPage is the alignment of staging memory, enough for O_DIRECT anywhere.
const hostPage = 4096

// A HostRoute is the last rung: pread into host memory and copy, or the reverse.
// It takes everything, needs nothing, and is the reference for all the others.
// Memory that the CPU can reach is read and written in place.
type HostRoute struct {
	dev  gpu.Device
	pool sync.Pool // of *[]byte, hostChunk long, page aligned
}

// NewHost returns the host route to a GPU.
func NewHost(dev gpu.Device) *HostRoute {
	h := &HostRoute{dev: dev}
	h.pool.New = func() any {
		b := alignedBytes(hostChunk, hostPage)
		return &b
	}
	return h
}

// ID is Host.
func (h *HostRoute) ID() ID { return Host }

// Probe accepts every file.
func (h *HostRoute) Probe(*storage.File) Verdict { return nil }

// Takes takes every op.
func (h *HostRoute) Takes(*Op) *Decline { return nil }

// Close has nothing to give back.
func (h *HostRoute) Close() error { return nil }

// Run stages one chunk after the other.
func (h *HostRoute) Run(ctx context.Context, ops []Op, res []Receipt) error {
	bufp := h.pool.Get().(*[]byte)
	defer h.pool.Put(bufp)
	for i := range ops {
		if err := h.run(ctx, &ops[i], &res[i], *bufp); err != nil {
			return err
		}
	}
	return nil
}

func (h *HostRoute) run(ctx context.Context, op *Op, r *Receipt, buf []byte) error {
	for done := uint64(0); done < op.Mem.Len; {
		if err := ctx.Err(); err != nil {
			return err
		}
		addr, off := op.Mem.Addr()+gpu.Addr(done), op.Off+int64(done)
		left := op.Mem.Len - done
		n, err := h.chunk(op, buf[:min(uint64(len(buf)), left)], off, addr)
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

// chunk moves len(stage) bytes, through stage where the CPU cannot reach the
// memory itself. A wild host pointer is the kernel's to find: EFAULT.
func (h *HostRoute) chunk(op *Op, stage []byte, off int64, addr gpu.Addr) (int, error) {
	switch {
	case op.Kind.OnDevice() && op.Dir == Read:
		return h.readChunk(op.File, stage, off, addr)
	case op.Kind.OnDevice():
		return h.writeChunk(op.File, stage, off, addr)
	case op.Dir == Read:
		return preadFull(op.File, gpu.HostBytes(addr, uint64(len(stage))), off)
	default:
		return pwriteHost(op.File, gpu.HostBytes(addr, uint64(len(stage))), off)
	}
}

func (h *HostRoute) readChunk(f *storage.File, p []byte, off int64, to gpu.Addr) (int, error) {
	n, err := preadFull(f, p, off)
	if n > 0 {
		if cerr := h.dev.CopyIn(to, p[:n]); cerr != nil {
			return 0, cerr
		}
	}
	return n, err
}

func (h *HostRoute) writeChunk(f *storage.File, p []byte, off int64, from gpu.Addr) (int, error) {
	if err := h.dev.CopyOut(p, from); err != nil {
		return 0, err
	}
	return pwriteFull(f, p, off)
}

// preadFull reads until p is full or the file ends (io.EOF).
func preadFull(f *storage.File, p []byte, off int64) (int, error) {
	if f.Buffered() < 0 {
		return preadAligned(f, p, off)
	}
	done := 0
	for done < len(p) {
		n, err := unix.Pread(f.Buffered(), p[done:], off+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.EOF
		}
		done += n
	}
	return done, nil
}

// pwriteHost writes from the caller's own memory, which need not be aligned for
// O_DIRECT, so it goes through the page cache unless there is no way around.
func pwriteHost(f *storage.File, p []byte, off int64) (int, error) {
	if f.Buffered() < 0 {
		return pwriteAligned(f, p, off)
	}
	return pwriteAll(f.Buffered(), p, off)
}

// pwriteFull writes all of p, through the descriptor that the caller's flags ask
// for where the request is aligned, else through the page cache.
func pwriteFull(f *storage.File, p []byte, off int64) (int, error) {
	fd := f.FD()
	if f.CallerDirect() && !f.Facts.Direct.Aligned(off, int64(len(p))) {
		if fd = f.Buffered(); fd < 0 {
			return pwriteAligned(f, p, off)
		}
	}
	return pwriteAll(fd, p, off)
}

func pwriteAll(fd int, p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Pwrite(fd, p[done:], off+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.ErrShortWrite
		}
		done += n
	}
	return done, nil
}
