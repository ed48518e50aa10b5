package cufile_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

// A barrier is a word that a stream waits for until the test opens it.
type barrier struct {
	f    *fixture
	word gpu.Addr
}

func (f *fixture) barrier(s gpu.Stream) barrier {
	f.t.Helper()
	a, err := f.dev.Alloc(gpu.KindHost, 8, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	clear(gpu.HostBytes(a, 8))
	if err := s.Wait(a, 1, 8, gpu.CondEQ); err != nil {
		f.t.Fatal(err)
	}
	return barrier{f, a}
}

// open uses a stream of its own: copies of the CPU would wait for the blocked one.
func (b barrier) open() {
	b.f.t.Helper()
	s := b.f.stream()
	if err := s.Write(b.word, 1, 8); err != nil {
		b.f.t.Fatal(err)
	}
	b.f.wait(s)
}

func (f *fixture) stream() gpu.Stream {
	f.t.Helper()
	s, err := f.dev.NewStream()
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// blockingStream is one that synchronous calls of CUDA wait for.
func (f *fixture) blockingStream() gpu.Stream {
	f.t.Helper()
	outer, ok := f.dev.(*nvrm.Device)
	if !ok {
		f.t.Skip("needs the software GPU")
	}
	dev := outer.Device.(*softgpu.Device)
	s, err := dev.NewStreamFlags(softgpu.StreamDefault)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) wait(s gpu.Stream) {
	f.t.Helper()
	if err := s.Synchronize(); err != nil {
		f.t.Fatal(err)
	}
}

// A result is what Done of one transfer got.
type result struct {
	calls atomic.Int32
	r     route.Receipt
	err   error
}

func (r *result) done(receipt route.Receipt, err error) {
	r.r, r.err = receipt, err
	r.calls.Add(1)
}

func (r *result) check(t testing.TB, name string, bytes int64, err error) {
	t.Helper()
	if n := r.calls.Load(); n != 1 || r.r.Bytes != bytes || !errors.Is(r.err, err) {
		t.Errorf("%s: called %d times, %d bytes, error %v; want once, %d, %v", name, n, r.r.Bytes, r.err, bytes, err)
	}
}

// A read is enqueued behind a wait for something that happens after the call, and uses
// what its arguments are when its turn comes. On every route, and in a stream that
// synchronous copies wait for.
func TestStreamReadsWhenItsTurnComes(t *testing.T) {
	for _, id := range []route.ID{route.None, route.NVFS, route.P2PDMA, route.Bar, route.Ring, route.Host} {
		t.Run(id.String(), func(t *testing.T) {
			f := newFixture(t, softConfig(), 1<<20)
			if _, ok := f.usable()[id]; id != route.None && !ok {
				t.Skipf("needs route %s", id)
			}
			h := f.open(os.O_RDONLY)
			if err := h.Require(0, id); err != nil {
				t.Fatal(err)
			}
			buf := f.buffer(64 << 10)
			s := f.blockingStream()
			barrier := f.barrier(s)
			var res result
			off, n := int64(0), uint64(0) // not yet known
			err := h.ReadAsync(s, cufile.StreamOp{
				Mem:  buf.Span(),
				Args: func() (gpu.Span, int64, error) { return buf.Span().Slice(4096, n), off, nil },
				Done: res.done,
			})
			if err != nil {
				t.Fatal(err)
			}
			off, n = 8192, 16384
			barrier.open()
			f.wait(s)
			res.check(t, "read", 16384, nil)
			got := f.gpuBytes(buf.Span())
			if !bytes.Equal(got[4096:4096+16384], f.data[8192:8192+16384]) {
				t.Error("wrong data")
			}
			if id != route.None && res.r.Route != id {
				t.Errorf("by %v", res.r.Route)
			}
		})
	}
}

// Unpinning pages waits for streams, so that a transfer in a stream declines the route.
func TestMappedIsNotUsedInAStream(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	h := f.open(os.O_RDONLY)
	if err := h.Require(0, route.Mapped); err != nil {
		t.Skip(err)
	}
	buf := f.buffer(4096)
	var res result
	s := f.blockingStream()
	if err := h.ReadAsync(s, cufile.StreamOp{Mem: buf.Span(), Done: res.done}); err != nil {
		t.Fatal(err)
	}
	f.wait(s)
	res.check(t, "read", 0, cufile.IONotSupported)
}

// A paired stream counts host functions that another one follows before their wait.
type paired struct {
	gpu.Stream
	between, mixed atomic.Int32
}

func (s *paired) Do(fn func()) error {
	if s.between.Add(1) > 1 {
		s.mixed.Add(1)
	}
	defer runtime.Gosched() // another thread gets a chance
	return s.Stream.Do(fn)
}

func (s *paired) Wait(a gpu.Addr, v uint64, width int, c gpu.Cond) error {
	s.between.Add(-1)
	return s.Stream.Wait(a, v, width, c)
}

// Transfers of one stream run one after the other, whatever threads enqueue them, and
// one that fails stops no other.
func TestStreamKeepsItsOrder(t *testing.T) {
	const threads, each = 8, 16
	f := newFixture(t, softConfig(), 1<<20)
	h := f.open(os.O_RDWR)
	buf := f.buffer(threads * each * 4096)
	s := &paired{Stream: f.stream()}
	barrier := f.barrier(s.Stream)
	var (
		results [threads * each]result
		running atomic.Int32
		all     sync.WaitGroup
	)
	for i := range threads {
		all.Go(func() {
			for k := range each {
				op := i*each + k
				err := h.ReadAsync(s, cufile.StreamOp{
					Mem: buf.Span(),
					Args: func() (gpu.Span, int64, error) {
						if running.Add(1) != 1 {
							t.Error("two transfers of one stream at a time")
						}
						n := uint64(4096)
						if op%5 == 4 {
							n = 1 << 40 // more than there is
						}
						return gpu.Span{Base: buf.Span().Base, Off: uint64(op) * 4096, Len: n}, int64(op) * 4096, nil
					},
					Done: func(r route.Receipt, err error) {
						running.Add(-1)
						results[op].done(r, err)
					},
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := s.mixed.Load(); n > 0 {
		t.Errorf("%d transfers got between the two calls of another", n)
	}
	barrier.open()
	f.wait(s.Stream)
	got := f.gpuBytes(buf.Span())
	for i := range results {
		if i%5 == 4 {
			results[i].check(t, "bad read", 0, cufile.InvalidMappingRange)
			continue
		}
		results[i].check(t, "read", 4096, nil)
		if !bytes.Equal(got[i*4096:][:4096], f.data[i*4096:][:4096]) {
			t.Errorf("wrong data in block %d", i)
		}
	}
}

// A second stream that waits for an event of the first sees what was read, and writes
// it back elsewhere.
func TestStreamsWaitForEachOther(t *testing.T) {
	f := newFixture(t, softConfig(), 64<<10)
	h := f.open(os.O_RDWR)
	buf := f.buffer(16 << 10)
	first, second := f.stream(), f.stream()
	event, err := f.dev.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	barrier := f.barrier(first)
	var read, written result
	if err := h.ReadAsync(first, cufile.StreamOp{Mem: buf.Span(), Done: read.done}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Record(event), second.WaitEvent(event)); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteAsync(second, cufile.StreamOp{Mem: buf.Span(), Off: 32 << 10, Done: written.done}); err != nil {
		t.Fatal(err)
	}
	barrier.open()
	f.wait(second)
	read.check(t, "read", 16<<10, nil)
	written.check(t, "write", 16<<10, nil)
	now, err := os.ReadFile(f.path)
	if err != nil || !bytes.Equal(now[32<<10:48<<10], f.data[:16<<10]) {
		t.Errorf("the file has other bytes: %v", err)
	}
}

// Closing the file, the buffer and the driver does not wait for transfers that wait in
// a stream; these fail when their turn comes.
func TestCloseWithTransfersInStreams(t *testing.T) {
	m := softMachine(t, softConfig())
	f := newFixtureOn(t, m, 64<<10)
	dev, err := m.GPU.Open(0) // which stays open when the driver is closed
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	f.dev = dev
	h, closed := f.open(os.O_RDONLY), f.open(os.O_RDONLY)
	buf := f.buffer(4096)
	s := f.blockingStream()
	barrier := f.barrier(s)
	open := f.stream()
	var ofFile, ofBuffer, ofDriver result
	if err := closed.ReadAsync(s, cufile.StreamOp{Mem: buf.Span(), Done: ofFile.done}); err != nil {
		t.Fatal(err)
	}
	if err := h.ReadAsync(s, cufile.StreamOp{Mem: buf.Span(), Done: ofBuffer.done}); err != nil {
		t.Fatal(err)
	}
	event, err := f.dev.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Record(event), open.WaitEvent(event)); err != nil {
		t.Fatal(err)
	}
	if err := h.ReadAsync(open, cufile.StreamOp{Mem: buf.Span(), Done: ofDriver.done}); err != nil {
		t.Fatal(err)
	}
	finish := f.stream()
	if err := errors.Join(closed.Close(), buf.Close(), f.drv.Close()); err != nil {
		t.Fatal(err)
	}
	if err := closed.ReadAsync(finish, cufile.StreamOp{}); !errors.Is(err, cufile.HandleNotRegistered) {
		t.Errorf("a closed file: %v", err)
	}
	if err := finish.Write(barrier.word, 1, 8); err != nil {
		t.Fatal(err)
	}
	f.wait(open)
	for name, r := range map[string]*result{"file": &ofFile, "buffer": &ofBuffer, "driver": &ofDriver} {
		r.check(t, name, 0, cufile.HandleNotRegistered)
	}
}

// A capturing stream is one whose work is recorded into a graph.
type capturing struct{ gpu.Stream }

func (capturing) Capturing() (bool, error) { return true, nil }

func TestCaptureIsRefused(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	h := f.open(os.O_RDONLY)
	err := h.ReadAsync(capturing{f.stream()}, cufile.StreamOp{Mem: f.buffer(4096).Span(), Done: func(route.Receipt, error) { t.Error("it ran") }})
	if cufile.CodeOf(err) != cufile.CUDADriverError || !errors.Is(err, gpu.ErrStreamCaptureUnsupported) {
		t.Error(err)
	}
	if err := h.ReadAsync(nil, cufile.StreamOp{}); !errors.Is(err, cufile.InvalidValue) {
		t.Errorf("no stream: %v", err)
	}
}

// A failing stream refuses one of the two calls.
type failing struct {
	gpu.Stream
	do, wait error
}

func (s *failing) Do(fn func()) error {
	if s.do != nil {
		return s.do
	}
	return s.Stream.Do(fn)
}

func (s *failing) Wait(a gpu.Addr, v uint64, width int, c gpu.Cond) error {
	if s.wait != nil {
		return s.wait
	}
	return s.Stream.Wait(a, v, width, c)
}

// A transfer that cannot be put into its stream is refused and never runs.
func TestStreamThatTakesNoWork(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	h := f.open(os.O_RDONLY)
	buf := f.buffer(4096)
	s := f.stream()
	for _, bad := range []*failing{{s, gpu.ErrInvalidHandle, nil}, {s, nil, gpu.ErrNotSupported}} {
		err := h.ReadAsync(bad, cufile.StreamOp{Mem: buf.Span(), Done: func(route.Receipt, error) { t.Error("it ran") }})
		if cufile.CodeOf(err) != cufile.CUDADriverError || !errors.Is(err, errors.Join(bad.do, bad.wait)) && !errors.Is(err, bad.do) && !errors.Is(err, bad.wait) {
			t.Errorf("%v", err)
		}
	}
	var res result
	if err := h.ReadAsync(s, cufile.StreamOp{Mem: buf.Span(), Done: res.done}); err != nil {
		t.Fatal(err)
	}
	f.wait(s)
	res.check(t, "the next one", 4096, nil)
}

// A watched stream notes the calls by which transfers got into it.
type watched struct {
	gpu.Stream
	calls []string
	fail  error // of WaitIfIdle
}

func (s *watched) Do(fn func()) error {
	s.calls = append(s.calls, "do")
	return s.Stream.Do(fn)
}

func (s *watched) Wait(a gpu.Addr, v uint64, width int, c gpu.Cond) error {
	s.calls = append(s.calls, "wait")
	return s.Stream.Wait(a, v, width, c)
}

func (s *watched) Capturing() (bool, error) {
	s.calls = append(s.calls, "capturing")
	return false, nil
}

func (s *watched) WaitIfIdle(a gpu.Addr, v uint64, width int, c gpu.Cond) (bool, error) {
	s.calls = append(s.calls, "wait if idle")
	if s.fail != nil {
		return false, s.fail
	}
	return s.Stream.(interface {
		WaitIfIdle(gpu.Addr, uint64, int, gpu.Cond) (bool, error)
	}).WaitIfIdle(a, v, width, c)
}

// A transfer in an idle stream begins in the call, without the way through the stream;
// behind other work it waits for its turn. Later work waits for both.
func TestIdleStreamBeginsAtOnce(t *testing.T) {
	f := newFixture(t, softConfig(), 8192)
	h := f.open(os.O_RDONLY)
	buf := f.buffer(8192)
	s := &watched{Stream: f.stream()}
	var idle, queued, refused result
	first, second := buf.Span().Slice(0, 4096), buf.Span().Slice(4096, 4096)
	if err := h.ReadAsync(s, cufile.StreamOp{Mem: first, Done: idle.done}); err != nil {
		t.Fatal(err)
	}
	if err := s.Fill(first.Addr(), 0xEE, 1, 4096); err != nil {
		t.Fatal(err)
	}
	f.wait(s)
	idle.check(t, "idle", 4096, nil)
	if want := []string{"capturing", "wait if idle"}; !slices.Equal(s.calls, want) {
		t.Errorf("in an idle stream: %v, want %v", s.calls, want)
	}
	if got := f.gpuBytes(first); !bytes.Equal(got, bytes.Repeat([]byte{0xEE}, 4096)) {
		t.Error("later work did not wait for the transfer")
	}
	barrier := f.barrier(s)
	s.calls = nil
	if err := h.ReadAsync(s, cufile.StreamOp{Mem: second, Off: 4096, Done: queued.done}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"capturing", "wait if idle", "do", "wait"}; queued.calls.Load() != 0 || !slices.Equal(s.calls, want) {
		t.Errorf("behind other work: ended %d times, calls %v, want %v", queued.calls.Load(), s.calls, want)
	}
	barrier.open()
	f.wait(s)
	queued.check(t, "queued", 4096, nil)
	s.fail = gpu.ErrIllegalAddress
	if err := h.ReadAsync(s, cufile.StreamOp{Mem: first, Done: refused.done}); !errors.Is(err, gpu.ErrIllegalAddress) {
		t.Error(err)
	}
	if n := refused.calls.Load(); n != 0 {
		t.Error("a refused transfer ran")
	}
}

// More transfers wait in streams than there are words in one page; each call returns.
func TestManyTransfersInStreams(t *testing.T) {
	const streams, each = 16, 600
	f := newFixture(t, soft.Config{Memory: 64 << 20}, 4096)
	h := f.open(os.O_RDONLY)
	buf := f.buffer(4096)
	var all [streams]gpu.Stream
	first := f.stream()
	barrier := f.barrier(first)
	event, err := f.dev.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Record(event); err != nil {
		t.Fatal(err)
	}
	var sum atomic.Int64
	for i := range all {
		all[i] = f.stream()
		if err := all[i].WaitEvent(event); err != nil {
			t.Fatal(err)
		}
		for range each {
			err := h.ReadAsync(all[i], cufile.StreamOp{Mem: buf.Span().Slice(uint64(i)*8, 8), Done: func(r route.Receipt, err error) { sum.Add(r.Bytes) }})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	barrier.open()
	for _, s := range all {
		f.wait(s)
	}
	if want := int64(streams * each * 8); sum.Load() != want {
		t.Errorf("%d bytes, want %d", sum.Load(), want)
	}
}

// The first write to a block stack comes from a stream, and its proof makes nothing wait
// for that stream. A mirror of which one drive would take other bytes is found by it; the
// file is right by another route.
func TestFirstWriteInAStream(t *testing.T) {
	const n = 256 << 10
	for stack, want := range map[string]route.ID{"raid1": route.NVFS, "raid1-half": route.Ring} {
		t.Run(stack, func(t *testing.T) {
			cfg := softConfig()
			cfg.Stack = stack
			f := newFixture(t, cfg, n)
			if _, ok := f.usable()[route.NVFS]; !ok {
				t.Skip("needs route nvfs")
			}
			h := f.open(os.O_RDWR)
			buf := f.buffer(n)
			data := bytes.Repeat([]byte("new bytes"), n)[:n]
			if err := f.dev.CopyIn(buf.Span().Addr(), data); err != nil {
				t.Fatal(err)
			}
			var res result
			s := f.blockingStream()
			if err := h.WriteAsync(s, cufile.StreamOp{Mem: buf.Span(), Done: res.done}); err != nil {
				t.Fatal(err)
			}
			f.wait(s)
			res.check(t, "write", n, nil)
			if now, err := os.ReadFile(f.path); err != nil || !bytes.Equal(now, data) || res.r.Route != want {
				t.Errorf("right %v, %v, %v, want route %v", bytes.Equal(now, data), err, &res.r, want)
			}
		})
	}
}

// What nvidia-fs does not move by itself makes nothing wait for the stream either: unaligned
// ends, holes of the file, and memory that the drive reaches only through a bounce buffer.
func TestNVFSInAStream(t *testing.T) {
	const n = 256 << 10
	for what, c := range map[string]struct {
		at, off, len uint64
		hole         bool
		required     bool
	}{
		"ends":                  {at: 100, off: 100, len: n - 300},
		"ends, required":        {at: 100, off: 100, len: n - 300, required: true},
		"hole":                  {len: n, hole: true},
		"other phase, required": {at: 512, len: n - 4096, required: true},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, softConfig(), n)
			if _, ok := f.usable()[route.NVFS]; !ok {
				t.Skip("needs route nvfs")
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			data, err := os.ReadFile(f.path)
			must(err)
			if c.hole {
				clear(data[64<<10 : 128<<10])
				fd, err := os.OpenFile(f.path, os.O_RDWR, 0)
				must(err)
				must(unix.Fallocate(int(fd.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 64<<10, 64<<10))
				must(errors.Join(fd.Sync(), fd.Close()))
			}
			h := f.open(os.O_RDONLY)
			if c.required {
				must(h.Require(0, route.NVFS))
			}
			mem := f.buffer(n).Span().Slice(c.at, c.len)
			var res result
			s := f.blockingStream()
			must(h.ReadAsync(s, cufile.StreamOp{Mem: mem, Off: int64(c.off), Done: res.done}))
			f.wait(s)
			res.check(t, "read", int64(c.len), nil)
			right := bytes.Equal(f.gpuBytes(mem), data[c.off:c.off+c.len])
			if !right || res.r.Route != route.NVFS || c.hole && res.r.Holes == 0 {
				t.Errorf("right %v, %v", right, &res.r)
			}
		})
	}
}
