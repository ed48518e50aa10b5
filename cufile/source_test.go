package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A shelf is a source in memory. Writes behind its end fail.
type shelf struct {
	mu   sync.Mutex
	data []byte
}

func (s *shelf) Name() string { return "shelf" }

func (s *shelf) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off >= int64(len(s.data)) {
		return 0, io.EOF
	}
	n := copy(p, s.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (s *shelf) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off+int64(len(p)) > int64(len(s.data)) {
		return 0, unix.ENOSPC
	}
	return copy(s.data[off:], p), nil
}

// A source is read and written like a file: by GPU and host memory, small and large, in
// a batch, by several goroutines.
func TestSource(t *testing.T) {
	const size = 5<<20 + 3
	f := newFixture(t, softConfig(), size)
	s := &shelf{data: bytes.Clone(f.data)}
	h, err := f.drv.RegisterSource(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, mem := context.Background(), gpu.Span{Base: f.alloc(size + 4096), Len: size + 4096}
	for _, c := range []struct{ off, n int }{{0, size}, {5, 100}, {1 << 20, 300 << 10}, {size - 9, 4096}, {size, 10}} {
		want := f.data[c.off:min(c.off+c.n, size)]
		r, err := h.ReadAt(ctx, mem.Slice(0, uint64(c.n)), int64(c.off))
		if err != nil || r.Bytes != int64(len(want)) || len(want) > 0 && !bytes.Equal(f.gpuBytes(mem.Slice(0, uint64(len(want)))), want) {
			t.Errorf("read %+v: %v, %v", c, &r, err)
		}
	}
	host, err := f.dev.Alloc(gpu.KindHost, 8192, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := f.open(os.O_RDONLY)
	reqs := []cufile.Request{
		{File: h, Mem: gpu.Span{Base: host, Len: 8192}, Off: 77},
		{File: file, Mem: mem.Slice(0, 4096), Off: 4096},
		{File: h, Mem: mem.Slice(4096, 4096), Off: 8192},
	}
	if err := f.drv.Do(ctx, reqs, make([]route.Receipt, 3)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(gpu.HostBytes(host, 8192), f.data[77:77+8192]) || !bytes.Equal(f.gpuBytes(mem.Slice(0, 8192)), f.data[4096:4096+8192]) {
		t.Error("the batch read wrong bytes")
	}
	var wg sync.WaitGroup
	for i := range 4 {
		part := mem.Slice(uint64(i)<<20, 1<<20)
		wg.Go(func() {
			if _, err := h.ReadAt(ctx, part, int64(i)<<20); err != nil {
				t.Error(err)
			}
			if _, err := h.WriteAt(ctx, part, int64(3-i)<<20); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(h.Sync(), h.StartReading(0, 4096), h.SetCache(route.CacheAvoid, 0)); err != nil {
		t.Error(err)
	}
	if _, err := h.Size(); !errors.Is(err, unix.ENOTSUP) {
		t.Errorf("size: %v", err)
	}
	if p, err := h.Plan(0); err != nil || p.Best() != route.Ring {
		t.Errorf("plan: %v, %v", p, err)
	}
	if s := h.Stats(); s.WriteBytes != 4<<20 || s.ReadBytes == 0 {
		t.Errorf("counted %+v", s)
	}
}

// A source's error is that of the transfer, and a source that was closed is not called.
func TestSourceErrors(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	s := &shelf{data: bytes.Clone(f.data)}
	h, err := f.drv.RegisterSource(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, mem := context.Background(), gpu.Span{Base: f.alloc(4096), Len: 4096}
	if _, err := h.WriteAt(ctx, mem, 1); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write behind the end: %v", err)
	}
	if err := h.Require(0, route.P2PDMA); !errors.Is(err, cufile.IONotSupported) {
		t.Errorf("a direct route: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.ReadAt(ctx, mem, 0); !errors.Is(err, cufile.HandleNotRegistered) {
		t.Errorf("read after close: %v", err)
	}
	if err := h.Close(); !errors.Is(err, cufile.HandleNotRegistered) {
		t.Errorf("second close: %v", err)
	}
	if _, err := f.drv.RegisterSource(nil); !errors.Is(err, cufile.InvalidValue) {
		t.Errorf("nil: %v", err)
	}
}

// A source takes part in the order of a stream.
func TestSourceInStream(t *testing.T) {
	f := newFixture(t, softConfig(), 8192)
	s := &shelf{data: bytes.Clone(f.data)}
	h, err := f.drv.RegisterSource(s)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := f.dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	mem := gpu.Span{Base: f.alloc(4096), Len: 4096}
	results := make(chan error, 3)
	op := func(off int64) cufile.StreamOp {
		return cufile.StreamOp{Mem: mem, Off: off, Done: func(_ route.Receipt, err error) { results <- err }}
	}
	if err := errors.Join(h.ReadAsync(stream, op(0)), h.WriteAsync(stream, op(4096)), h.WriteAsync(stream, op(8192)), stream.Synchronize()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-results, <-results); err != nil {
		t.Error(err)
	}
	if err := <-results; !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write behind the end: %v", err)
	}
	if !bytes.Equal(s.data[4096:], f.data[:4096]) {
		t.Error("the second block is not a copy of the first")
	}
}

// A miscount is a source that returns impossible numbers of bytes.
type miscount int

func (miscount) Name() string { return "miscount" }

func (m miscount) ReadAt(p []byte, _ int64) (int, error) {
	if m < 0 {
		return int(m), nil
	}
	return len(p) + int(m), nil
}

func (m miscount) WriteAt(p []byte, off int64) (int, error) { return m.ReadAt(p, off) }

// A count that a source cannot have moved is an error of the transfer, on every route.
func TestImpossibleCounts(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	mem := gpu.Span{Base: f.alloc(1 << 20), Len: 1 << 20}
	for _, m := range []miscount{-1, 1, 100} {
		h, err := f.drv.RegisterSource(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []route.ID{route.Ring, route.Host} {
			if err := h.Require(0, id); err != nil {
				t.Fatal(err)
			}
			if r, err := h.ReadAt(t.Context(), mem, 0); cufile.CodeOf(err) != cufile.IOError || r.Bytes != 0 {
				t.Errorf("%v: %d of a read: %d bytes, %v", id, m, r.Bytes, err)
			}
			if r, err := h.WriteAt(t.Context(), mem, 0); cufile.CodeOf(err) != cufile.IOError || r.Bytes != 0 {
				t.Errorf("%v: %d of a write: %d bytes, %v", id, m, r.Bytes, err)
			}
		}
	}
}
