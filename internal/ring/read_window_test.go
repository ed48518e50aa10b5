package ring

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/trace"
)

// TestWindowReaders is the table of the rule.
func TestWindowReaders(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		n, queued int64
		want      int
	}{
		{2 * mib, 0, 6},
		{2 * mib, 4*mib - 1, 6},
		{2 * mib, 4 * mib, 4},
		{2 * mib, 1 << 40, 4},
		{8 * mib, 4*mib - 1, 6},
		{8 * mib, 1 << 40, 4},
		{8*mib + 1, 0, 4},
		{8*mib + 1, 24*mib - 1, 4},
		{8*mib + 1, 24 * mib, 0},
		{32 * mib, 24*mib - 1, 4},
		{32*mib + 1, 4*mib - 1, 3},
		{32*mib + 1, 4 * mib, 0},
		{1 << 40, 0, 3},
		{1 << 40, 1 << 40, 0},
	} {
		if got := windowReaders(c.n, c.queued); got != c.want {
			t.Errorf("%d bytes behind %d: %d, want %d", c.n, c.queued, got, c.want)
		}
	}
}

// A windowed buffer is GPU memory that the CPU sees: the driver migrates it.
type windowed struct {
	buffer
	mem []byte // without the canaries
}

func newWindowed(t testing.TB, dev gpu.Device, n int) *windowed {
	t.Helper()
	all := uint64(n + 2*canaryLen)
	a, err := dev.Alloc(gpu.KindManaged, all, gpu.ManagedGlobal)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Free(a); err != nil {
			t.Errorf("free: %v", err)
		}
	})
	if err := dev.Fill(a, canary, 1, all); err != nil {
		t.Fatal(err)
	}
	w := &windowed{buffer: buffer{dev, a, n}}
	w.mem = gpu.HostBytes(w.addr(), uint64(n))
	return w
}

// read is a read of n bytes to the place at of the buffer.
func (w *windowed) read(f *testFile, off, at, n int64) Request {
	return Request{Buffered: f.buffered, Direct: -1, Off: off, Addr: w.addr() + gpu.Addr(at), Len: n, Window: w.mem[at : at+n]}
}

// windowFiles are the kernel, and know which reads go to a window.
type windowFiles struct {
	oddFiles
	mem []byte // the window
	// inWindow is called for those reads, from many goroutines. An error is the answer, and
	// so is a number of bytes, at most.
	inWindow func(off int64, n int) (most int, err error)
	cached   func(off, n int64) (storage.Residency, error) // nil: the kernel's

	reads, now, most atomic.Int64 // of the window
}

func (f *windowFiles) Pread(fd int, p []byte, off int64) (int, error) {
	at, from := gpu.HostAddr(p), gpu.HostAddr(f.mem)
	if at < from || at >= from+gpu.Addr(len(f.mem)) {
		return f.oddFiles.Pread(fd, p, off)
	}
	f.reads.Add(1)
	now := f.now.Add(1)
	defer f.now.Add(-1)
	for most := f.most.Load(); now > most && !f.most.CompareAndSwap(most, now); most = f.most.Load() {
	}
	if f.inWindow != nil {
		n, err := f.inWindow(off, len(p))
		if err != nil {
			return 0, err
		}
		p = p[:min(n, len(p))]
	}
	return f.oddFiles.Pread(fd, p, off)
}

func (f *windowFiles) Residency(fd int, off, n int64) (storage.Residency, error) {
	if f.cached != nil {
		return f.cached(off, n)
	}
	return f.oddFiles.Residency(fd, off, n)
}

// A windowFixture is a ring with a warm file and memory that has a window.
type windowFixture struct {
	ring  *Ring
	file  *testFile
	mem   *windowed
	files *windowFiles
}

func newWindowFixture(t *testing.T, cfg Config, n int) *windowFixture {
	t.Helper()
	dev := openGPU(t)
	w := &windowFixture{file: newFile(t, noise(41, n)), mem: newWindowed(t, dev, n)}
	w.files = &windowFiles{mem: w.mem.mem}
	cfg.sys = w.files
	w.ring = openRing(t, dev, cfg)
	return w
}

// check runs a read and checks what is in place, and the sums of its result.
func (w *windowFixture) check(t *testing.T, q Request) Result {
	t.Helper()
	w.mem.set(t, make([]byte, w.mem.n))
	res, err := run1(w.ring, q)
	want := w.file.data[min(q.Off, int64(len(w.file.data))):min(q.Off+q.Len, int64(len(w.file.data)))]
	if err != nil || res.N != int64(len(want)) {
		t.Fatalf("%d bytes at %d: %+v, %v", q.Len, q.Off, res, err)
	}
	at := int(q.Addr - w.mem.addr())
	got := w.mem.bytes(t)
	if !bytes.Equal(got[at:at+len(want)], want) {
		t.Errorf("%d bytes at %d: wrong bytes", q.Len, q.Off)
	}
	clear(got[at : at+len(want)])
	if !bytes.Equal(got, make([]byte, len(got))) {
		t.Errorf("%d bytes at %d: others changed", q.Len, q.Off)
	}
	if res.HostBytes+res.WindowBytes != res.N || res.Cache.Hit != res.N {
		t.Errorf("%d bytes at %d: %+v", q.Len, q.Off, res)
	}
	return res
}

// TestWindowReads checks random reads, by windows alone and mixed with copies, also beyond
// the end of the file.
func TestWindowReads(t *testing.T) {
	const n = 3<<20 + 777
	for name, others := range map[string]int32{"windows": 0, "mixed": idleReaders - 1, "copies": idleReaders} {
		t.Run(name, func(t *testing.T) {
			w := newWindowFixture(t, smallRing, n)
			w.ring.windows.threads.Store(others)
			if others == idleReaders-1 { // two threads must meet
				w.files.inWindow = func(int64, int) (int, error) {
					time.Sleep(100 * time.Microsecond)
					return whole, nil
				}
			}
			rnd := rand.New(rand.NewPCG(41, 1))
			var windows, copies int64 // of reads that end in the file: the cache lacks what is behind
			for range 40 {
				size := smallLen + 1 + rnd.Int64N(n-smallLen-1)
				q := w.mem.read(w.file, rnd.Int64N(n+1000), rnd.Int64N(n-size+1), size)
				if res := w.check(t, q); q.Off+size <= n {
					windows += res.WindowBytes
					copies += res.HostBytes
				}
			}
			few := windows / 20 // the kernel may take a page of the cache at any time
			if windows > 0 != (others < idleReaders) || copies > few != (others > 0) {
				t.Errorf("%d bytes by windows, %d by copies", windows, copies)
			}
			if got := w.ring.windows.threads.Load(); got != others {
				t.Errorf("%d threads are counted afterwards", got-others)
			}
		})
	}
}

// TestWindowBatch checks a batch in which some requests have a window.
func TestWindowBatch(t *testing.T) {
	const n, each = 4 << 20, 700_000
	w := newWindowFixture(t, smallRing, n)
	var reqs []Request
	for i := range int64(5) {
		q := w.mem.read(w.file, i*each, i*each, each)
		if i%2 == 0 {
			q.Window = nil
		}
		reqs = append(reqs, q)
	}
	res := make([]Result, len(reqs))
	if err := w.ring.Run(context.Background(), reqs, res); err != nil {
		t.Fatal(err)
	}
	for i := range res {
		if res[i].N != each || (res[i].WindowBytes > 0) != (reqs[i].Window != nil) || res[i].HostBytes+res[i].WindowBytes != each {
			t.Errorf("request %d: %+v", i, res[i])
		}
	}
	if !bytes.Equal(w.mem.bytes(t)[:5*each], w.file.data[:5*each]) {
		t.Error("wrong bytes")
	}
}

// TestWindowLimit checks how many threads read through windows at a time.
func TestWindowLimit(t *testing.T) {
	const n, callers = shortLen + page, 3
	w := newWindowFixture(t, Config{Slot: 64 << 10, Workers: 12}, callers*n)
	w.files.inWindow = func(int64, int) (int, error) {
		time.Sleep(200 * time.Microsecond)
		return whole, nil
	}
	for _, c := range []struct {
		n, queued, most int64
	}{{1 << 20, 0, idleReaders}, {1 << 20, busyQueue, busyReaders}, {n, idleQueue, busyReaders}, {n, busyQueue, 0}} {
		w.files.most.Store(0)
		w.ring.copies.Add(c.queued)
		var wg sync.WaitGroup
		for i := range int64(callers) {
			wg.Go(func() {
				if res, err := run1(w.ring, w.mem.read(w.file, i*n, i*n, c.n)); err != nil || res.N != c.n {
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
		wg.Wait()
		w.ring.copies.Add(-c.queued)
		if most := w.files.most.Load(); most > c.most || c.most > 0 && most < 2 {
			t.Errorf("%d bytes behind %d: %d threads at a time, want up to %d", c.n, c.queued, most, c.most)
		}
	}
	if !bytes.Equal(w.mem.bytes(t), w.file.data) {
		t.Error("wrong bytes")
	}
}

// TestWindowFails checks that a window that takes no bytes, or only some, costs a retry and
// nothing else, and that interrupted and short reads go on.
func TestWindowFails(t *testing.T) {
	const n = 2 << 20
	w := newWindowFixture(t, smallRing, n)
	var calls atomic.Int64
	for name, c := range map[string]struct {
		inWindow func(off int64, n int) (int, error)
		windows  bool
	}{
		"always": {func(int64, int) (int, error) { return 0, unix.EFAULT }, false},
		"in the middle": {func(_ int64, n int) (int, error) {
			if n < 40_000 {
				return 0, unix.EFAULT
			}
			return 8192, nil
		}, false},
		"short and interrupted": {func(int64, int) (int, error) {
			if calls.Add(1)%3 == 0 {
				return 0, unix.EINTR
			}
			return 30_000, nil
		}, true},
	} {
		w.files.inWindow = c.inWindow
		res := w.check(t, w.mem.read(w.file, 0, 0, n))
		if (res.WindowBytes == n) != c.windows || (res.HostBytes == n) == c.windows || res.Retries == 0 {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestWindowFileFails checks that a file that cannot be read is reported, with the bytes
// before that in place.
func TestWindowFileFails(t *testing.T) {
	const n, bad = 2 << 20, 1_300_000
	w := newWindowFixture(t, smallRing, n)
	w.files.set(func(c call) (int, error) {
		if c.off == bad {
			return 0, unix.EIO
		}
		if c.off < bad {
			return int(bad - c.off), nil
		}
		return whole, nil
	})
	res, err := run1(w.ring, w.mem.read(w.file, 0, 0, n))
	var e *Error
	if !errors.Is(err, unix.EIO) || !errors.As(err, &e) || e.Off != bad || res.N != bad || !bytes.Equal(w.mem.bytes(t)[:bad], w.file.data[:bad]) {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestWindowOnlyCached checks that chunks of which the page cache lacks a part, or says
// nothing, are read into slots.
func TestWindowOnlyCached(t *testing.T) {
	const n = 4 << 20
	hole := storage.Range{From: 1 << 20, To: 2<<20 + page}
	for name, c := range map[string]struct {
		cached  func(off, n int64) (storage.Residency, error)
		windows bool
	}{
		"a hole": {func(off, n int64) (storage.Residency, error) {
			lacks := max(min(off+n, hole.To)-max(off, hole.From), 0)
			return storage.Residency{Pages: n / page, Cached: (n - lacks) / page}, nil
		}, true},
		"unknown": {func(int64, int64) (storage.Residency, error) { return storage.Residency{}, unix.EPERM }, false},
	} {
		w := newWindowFixture(t, smallRing, n)
		w.files.cached = c.cached
		w.files.inWindow = func(off int64, n int) (int, error) {
			if off < hole.To && off+int64(n) > hole.From {
				t.Errorf("%s: %d bytes at %d went through the window", name, n, off)
			}
			return whole, nil
		}
		q := w.mem.read(w.file, 0, 0, n)
		q.Cache = w.file.plainly(1 << 40)
		res, err := run1(w.ring, q)
		if err != nil || res.N != n || (res.WindowBytes > 0) != c.windows || res.HostBytes < hole.To-hole.From {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		if !bytes.Equal(w.mem.bytes(t), w.file.data) {
			t.Errorf("%s: wrong bytes", name)
		}
	}
}

// TestWindowUnused checks which requests with a window do not use it.
func TestWindowUnused(t *testing.T) {
	const n = 1 << 20
	w := newWindowFixture(t, smallRing, n)
	read := func(n int64, change func(*Request)) Request {
		q := w.mem.read(w.file, 0, 0, n)
		change(&q)
		return q
	}
	for name, q := range map[string]Request{
		"small":   read(smallLen, func(*Request) {}),
		"a write": read(n, func(q *Request) { q.Write = true }),
		"a source": read(n, func(q *Request) {
			q.Source, q.Buffered = sourceOf(w.file.data), -1
		}),
		"no window": read(n, func(q *Request) { q.Window = nil }),
	} {
		if res, err := run1(w.ring, q); err != nil || res.N != q.Len || res.WindowBytes != 0 || w.files.reads.Load() != 0 {
			t.Errorf("%s: %+v, %v, %d reads", name, res, err, w.files.reads.Load())
		}
	}
	for _, wrong := range []int{0, n - 1} {
		if _, err := run1(w.ring, read(n, func(q *Request) { q.Window = q.Window[:wrong] })); !errors.Is(err, unix.EINVAL) {
			t.Errorf("a window of %d bytes: %v", wrong, err)
		}
	}
}

// sourceOf is a source that is only read.
type sourceOf []byte

func (s sourceOf) ReadAt(p []byte, off int64) (int, error)  { return bytes.NewReader(s).ReadAt(p, off) }
func (s sourceOf) WriteAt(p []byte, off int64) (int, error) { return 0, io.ErrShortWrite }

// TestWindowNotMeasured checks that the rate of reads into slots, by which the number of
// workers is chosen, does not count those through windows, and that a trace has them.
func TestWindowNotMeasured(t *testing.T) {
	const n = 8 << 20
	w := newWindowFixture(t, Config{Workers: 1}, n)
	w.files.inWindow = func(int64, int) (int, error) {
		time.Sleep(5 * time.Millisecond)
		return whole, nil
	}
	before := w.ring.sched.readRate.Get(firstRate)
	rec := trace.Start()
	res := w.check(t, w.mem.read(w.file, 0, 0, n))
	rec.Stop()
	var text bytes.Buffer
	if err := errors.Join(rec.Write(&text), rec.Close()); err != nil {
		t.Fatal(err)
	}
	if after := w.ring.sched.readRate.Get(firstRate); res.WindowBytes != n || after != before {
		t.Errorf("%+v; %.1f GB/s before, %.1f after", res, before/1e9, after/1e9)
	}
	if reads, copies := bytes.Count(text.Bytes(), []byte(`"name":"read"`)), bytes.Count(text.Bytes(), []byte(`"name":"copy"`)); reads == 0 || copies != 0 {
		t.Errorf("the trace has %d reads and %d copies:\n%s", reads, copies, text.Bytes())
	}
}

// TestWindowAllocates checks that reads through windows allocate nothing.
func TestWindowAllocates(t *testing.T) {
	if race {
		t.Skip("needs a build without the race detector, which allocates itself")
	}
	const n = 2 << 20
	w := newWindowFixture(t, smallRing, n)
	reqs, res := []Request{w.mem.read(w.file, 0, 0, n)}, make([]Result, 1)
	run := func() {
		if err := w.ring.Run(context.Background(), reqs, res); err != nil || res[0].WindowBytes == 0 {
			t.Fatal(err, res[0])
		}
	}
	for range 50 { // until all workers and pipelines are there
		run()
	}
	if allocs := testing.AllocsPerRun(20, run); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// slowFetches take their time, and nothing is cached.
type slowFetches struct{ windowFiles }

func (f *slowFetches) Residency(_ int, _, n int64) (storage.Residency, error) {
	return storage.Residency{Pages: n / page}, nil
}

func (f *slowFetches) Fetch(int, int64, int64) error {
	time.Sleep(20 * time.Millisecond)
	return nil
}

// TestWindowColdRate checks that the time of reading what the page cache lacks counts in the
// rates of reads, whether the request has a window or not.
func TestWindowColdRate(t *testing.T) {
	const n = 16 << 20
	for _, window := range []bool{false, true} {
		dev := openGPU(t)
		file, mem := newFile(t, noise(41, n)), newWindowed(t, dev, n)
		r := openRing(t, dev, Config{Workers: 1, sys: &slowFetches{windowFiles{mem: mem.mem}}})
		q := mem.read(file, 0, 0, n)
		q.Cache = file.plainly(1 << 40)
		if !window {
			q.Window = nil
		}
		for range 4 {
			if res, err := run1(r, q); err != nil || res.HostBytes != n {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		if rate := r.sched.readRate.Get(firstRate); rate > 1e9 {
			t.Errorf("window %v: %.1f GB/s", window, rate/1e9)
		}
	}
}
