package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

const (
	halves  = 2        // of the buffer
	gpuPage = 64 << 10 // halves are whole pages
	block   = 4096     // of routes that move whole blocks
)

// A reader fills GPU memory: a file, or one of another host.
type reader interface {
	ReadAt(ctx context.Context, mem gpu.Span, off int64) (route.Receipt, error)
}

// A writer stores GPU memory.
type writer interface {
	WriteAt(ctx context.Context, mem gpu.Span, off int64) (route.Receipt, error)
}

// A pump copies a file through a buffer of GPU memory: one goroutine reads into one
// half while another writes the other half.
type pump struct {
	whole bool // requests are in whole blocks
	from  reader
	to    writer
	size  int64 // unsized for a stream
	data  ranges
	o     *Options
	flush *flusher
	res   *Result

	dev  gpu.Device
	buf  *cufile.Buffer
	own  *pumpBuffer // nil if the copy after this one uses the memory, too
	half uint64
}

// A chunk is the contents of one half of the buffer.
type chunk struct {
	mem gpu.Span // n bytes, padded to whole blocks if required
	off int64
	n   int64
}

// open allocates and registers GPU memory, not more than the file needs, nor than there is.
func (p *pump) open(drv *cufile.Driver) (err error) {
	half := min(cmp.Or(p.o.Buffer, 64<<20)/halves, uint64(p.size))
	p.half = max((half+gpuPage-1)/gpuPage*gpuPage, gpuPage)
	if p.dev, err = drv.Device(p.o.GPU); err != nil {
		return err
	}
	mem := p.o.buffer
	if mem == nil {
		mem = &pumpBuffer{}
		p.own = mem
	}
	for {
		p.buf, err = mem.get(drv, p.dev, halves*p.half)
		if !errors.Is(err, gpu.ErrOutOfMemory) {
			return err
		}
		if p.half == gpuPage {
			return fmt.Errorf("gpu:%d has no room for a buffer of %s (fix: free GPU memory, or copy through another GPU, --via gpu:N): %w", p.o.GPU, human.Size(int64(halves*p.half)), err)
		}
		p.half = max(p.half/2/gpuPage*gpuPage, gpuPage) // other programs use the GPU: a smaller buffer is slower, no copy is worse
	}
}

// A pumpBuffer is registered GPU memory, which copies can use one after the other.
type pumpBuffer struct {
	dev gpu.Device
	buf *cufile.Buffer
}

// get returns n bytes or more.
func (b *pumpBuffer) get(drv *cufile.Driver, dev gpu.Device, n uint64) (*cufile.Buffer, error) {
	if b.buf != nil && b.buf.Span().Len >= n {
		return b.buf, nil
	}
	b.close()
	addr, err := dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		return nil, err
	}
	buf, err := drv.RegisterBuffer(addr, n)
	if err != nil {
		return nil, errors.Join(err, dev.Free(addr))
	}
	b.dev, b.buf = dev, buf
	return buf, nil
}

// close frees the memory, if there is some.
func (b *pumpBuffer) close() {
	if b == nil || b.buf == nil {
		return
	}
	addr := b.buf.Span().Base
	b.buf.Close()
	b.dev.Free(addr)
	b.buf = nil
}

// copy moves the data. The result gets receipts and time. Streams among the ends get the
// device.
func (p *pump) copy(ctx context.Context, drv *cufile.Driver, streams ...*stream) error {
	if p.o.step == nil {
		p.o.step = func() {}
	}
	if err := p.open(drv); err != nil {
		return err
	}
	defer p.own.close()
	for _, s := range streams {
		s.dev = p.dev
	}
	p.res.Read, p.res.Write = receipts(drv)
	start := time.Now()
	err := p.run(ctx)
	took := time.Since(start)
	p.res.Seconds = took.Seconds()
	if p.o.Limit != nil { // the time that the limit waits belongs to the rate
		p.res.Read.Time, p.res.Write.Time = took, took
	}
	return full(err)
}

// receipts are the empty sums of a copy.
func receipts(drv *cufile.Driver) (read, write *route.Receipt) {
	return &route.Receipt{Dir: route.Read, Machine: drv.Machine()}, &route.Receipt{Dir: route.Write, Machine: drv.Machine()}
}

func (p *pump) run(ctx context.Context) error {
	empty, full := make(chan gpu.Span, halves), make(chan chunk, halves)
	for i := range uint64(halves) {
		empty <- p.buf.Span().Slice(i*p.half, p.half)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.read(ctx, empty, full) })
	g.Go(func() error { return p.write(ctx, empty, full) })
	return g.Wait()
}

func (p *pump) read(ctx context.Context, empty <-chan gpu.Span, full chan<- chunk) error {
	defer close(full)
	for off := p.o.start; ; {
		start, length := p.data.next(off, p.o.Limit.Largest(int64(p.half), gpuPage))
		if length == 0 {
			return p.ended()
		}
		off = start
		var mem gpu.Span
		select {
		case mem = <-empty:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n := uint64(length)
		if err := p.o.Limit.Wait(ctx, length); err != nil {
			return err
		}
		mem = mem.Slice(0, p.pad(n))
		r, err := p.from.ReadAt(ctx, mem, off)
		count(p.res.Read, &r, int64(n))
		if err != nil {
			return err
		}
		if uint64(r.Bytes) < n {
			if p.size != unsized {
				return p.truncated(off + r.Bytes)
			}
			if r.Bytes > 0 {
				full <- chunk{mem.Slice(0, uint64(r.Bytes)), off, r.Bytes}
			}
			return nil
		}
		full <- chunk{mem, off, int64(n)}
		off += int64(n)
	}
}

// ended is called when there is no more data: a hole is not the same as the end of a
// file that was truncated.
func (p *pump) ended() error {
	size, err := p.data.now()
	if err != nil {
		return err
	}
	if size < p.size {
		return p.truncated(size)
	}
	return nil
}

func (p *pump) truncated(size int64) error {
	return fmt.Errorf("%s: %w: the file was truncated to %d bytes during the copy", p.res.Source, io.ErrUnexpectedEOF, size)
}

func (p *pump) write(ctx context.Context, empty chan<- gpu.Span, full <-chan chunk) error {
	for got := range full {
		if err := p.clearPadding(got); err != nil {
			return err
		}
		r, err := p.to.WriteAt(ctx, got.mem, got.off)
		count(p.res.Write, &r, got.n)
		if err != nil {
			return err
		}
		p.res.Bytes += r.Bytes
		if r.Bytes < got.n {
			return fmt.Errorf("%s: %w: %d of %d bytes at offset %d", p.res.Dest, io.ErrShortWrite, r.Bytes, got.n, got.off)
		}
		if err := p.flush.wrote(got); err != nil {
			return fmt.Errorf("%s: %w", p.res.Dest, err)
		}
		p.o.step()
		if p.o.Advance != nil {
			p.o.Advance(got.off+got.n, p.size)
		}
		empty <- p.buf.Span().Slice(got.mem.Off-p.buf.Span().Off, p.half)
	}
	return nil
}

// pad returns the length of a request for n bytes.
func (p *pump) pad(n uint64) uint64 {
	if !p.whole {
		return n
	}
	return (n + block - 1) / block * block
}

// clearPadding clears a chunk behind the end of the file: it reaches the disk until
// the file is truncated, and GPU memory may hold data of other processes.
func (p *pump) clearPadding(got chunk) error {
	rest := got.mem.Len - uint64(got.n)
	if rest == 0 {
		return nil
	}
	return p.dev.Fill(got.mem.Addr()+gpu.Addr(got.n), 0, 1, rest)
}

// count adds a receipt to a sum, without padding.
func count(sum, r *route.Receipt, n int64) {
	if more := r.Bytes - n; more > 0 {
		r.Bytes -= more
		r.By[r.Route] -= more
	}
	sum.Add(r)
}
