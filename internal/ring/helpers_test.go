package ring

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openGPU opens a software GPU. Under the race detector its memory is Go's,
// since that is all that the detector sees.
func openGPU(t testing.TB) gpu.Device {
	t.Helper()
	cfg := softgpu.Config{Scatter: true}
	if race {
		cfg.Backing = softgpu.Heap
	}
	drv, err := softgpu.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := drv.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("close the GPU: %v", err)
		}
		if err := drv.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
	})
	return dev
}

func openRing(t testing.TB, dev gpu.Device, cfg Config) *Ring {
	t.Helper()
	r, err := New(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := r.copies.Load(); n != 0 {
			t.Errorf("%d bytes are still in flight", n)
		}
	})
	return r
}

// smallRing has slots so small that a few MiB are many chunks.
var smallRing = Config{Budget: 4 << 20, Slot: 64 << 10, Depth: 3, Workers: 3}

func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// A testFile is a file on disk and what is in it.
type testFile struct {
	buffered, direct int // direct is -1 where the file system has none
	align            int // of direct I/O
	data             []byte
}

func newFile(t testing.TB, data []byte) *testFile {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return openFile(t, name, data)
}

func openFile(t testing.TB, name string, data []byte) *testFile {
	t.Helper()
	f := &testFile{data: data, direct: -1}
	var err error
	if f.buffered, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(f.buffered) })
	var fs unix.Statfs_t
	if err := unix.Fstatfs(f.buffered, &fs); err != nil {
		t.Fatal(err)
	}
	// A file system in memory may take O_DIRECT, and is never cold.
	if fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0); err == nil && inMemory(&fs) {
		unix.Close(fd)
	} else if err == nil {
		f.direct = fd
		t.Cleanup(func() { unix.Close(fd) })
	}
	f.align = alignOf(t, f.buffered)
	return f
}

// alignOf is what direct I/O asks of a file.
func alignOf(t testing.TB, fd int) int {
	t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0 {
		return 4096 // none requires more
	}
	return int(max(st.Dio_offset_align, st.Dio_mem_align))
}

// cool drops the file from the page cache.
func (f *testFile) cool(t testing.TB) {
	t.Helper()
	if err := unix.Fdatasync(f.buffered); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(f.buffered, 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// A failer is what testing.T and rapid.T have in common.
type failer interface {
	Helper()
	Error(args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// content is the file as it is now.
func (f *testFile) content(t failer) []byte {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(f.buffered, &st); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, st.Size)
	for n := 0; n < len(b); {
		k, err := unix.Pread(f.buffered, b[n:], int64(n))
		if err != nil || k == 0 {
			t.Fatalf("pread: %d, %v", k, err)
		}
		n += k
	}
	return b
}

// A buffer is GPU memory with canaries around it.
type buffer struct {
	dev  gpu.Device
	base gpu.Addr
	n    int
}

const (
	canary    = 0xc5
	canaryLen = 4096
)

func newBuffer(t testing.TB, dev gpu.Device, n int) *buffer {
	t.Helper()
	a, err := dev.Alloc(gpu.KindDevice, uint64(n+2*canaryLen), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Free(a); err != nil {
			t.Errorf("free: %v", err)
		}
	})
	if err := dev.Fill(a, canary, 1, uint64(n+2*canaryLen)); err != nil {
		t.Fatal(err)
	}
	return &buffer{dev, a, n}
}

func (b *buffer) addr() gpu.Addr { return b.base + canaryLen }

// bytes fetches the buffer and looks at the canaries.
func (b *buffer) bytes(t failer) []byte {
	t.Helper()
	all := make([]byte, b.n+2*canaryLen)
	if err := b.dev.CopyOut(all, b.base); err != nil {
		t.Fatal(err)
	}
	dead := bytes.Repeat([]byte{canary}, canaryLen)
	if !bytes.Equal(all[:canaryLen], dead) || !bytes.Equal(all[canaryLen+b.n:], dead) {
		t.Error("bytes outside of the buffer were written")
	}
	return all[canaryLen : canaryLen+b.n]
}

func (b *buffer) set(t failer, data []byte) {
	t.Helper()
	if err := b.dev.CopyIn(b.addr(), data); err != nil {
		t.Fatal(err)
	}
}

func run1(r *Ring, q Request) (Result, error) {
	res := make([]Result, 1)
	err := r.Run(context.Background(), []Request{q}, res)
	return res[0], err
}

// oddFiles is the kernel with failures: before each call it asks odd, which
// may answer instead, or shorten what is asked for.
type oddFiles struct {
	kernel
	mu  sync.Mutex
	odd func(c call) (most int, err error)
}

// A call is what the ring asks of the kernel.
type call struct {
	verb string // "pread", "pwrite", "store", "reserve"
	fd   int
	off  int64
	n    int
}

const whole = 1 << 62

func (o *oddFiles) ask(verb string, fd int, off int64, n int) (int, error) {
	o.mu.Lock()
	odd := o.odd
	o.mu.Unlock()
	if odd == nil {
		return n, nil
	}
	most, err := odd(call{verb, fd, off, n})
	return min(most, n), err
}

// set changes what happens; odd is called from many goroutines.
func (o *oddFiles) set(odd func(c call) (most int, err error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.odd = odd
}

func (o *oddFiles) Pread(fd int, p []byte, off int64) (int, error) {
	n, err := o.ask("pread", fd, off, len(p))
	if err != nil {
		return 0, err
	}
	return o.kernel.Pread(fd, p[:n], off)
}

func (o *oddFiles) Pwrite(fd int, p []byte, off int64) (int, error) {
	n, err := o.ask("pwrite", fd, off, len(p))
	if err != nil {
		return 0, err
	}
	return o.kernel.Pwrite(fd, p[:n], off)
}

func (o *oddFiles) Reserve(fd int, off, n int64) error {
	if _, err := o.ask("reserve", fd, off, int(n)); err != nil {
		return err
	}
	return o.kernel.Reserve(fd, off, n)
}

func (o *oddFiles) Store(dst, src []byte) (time.Duration, error) {
	if _, err := o.ask("store", -1, 0, len(src)); err != nil {
		return 0, err
	}
	return o.kernel.Store(dst, src)
}

// oddGPU is a GPU with failures: before each call it asks odd.
type oddGPU struct {
	gpu.Device
	mu    sync.Mutex
	odd   func(verb string, n uint64) error
	alive map[gpu.Addr]uint64 // pinned memory
	flags bool                // streams have CopyWrite
}

func newOddGPU(dev gpu.Device) *oddGPU {
	return &oddGPU{Device: dev, alive: map[gpu.Addr]uint64{}}
}

func (o *oddGPU) ask(verb string, n uint64) error {
	o.mu.Lock()
	odd := o.odd
	o.mu.Unlock()
	if odd == nil {
		return nil
	}
	return odd(verb, n)
}

func (o *oddGPU) set(odd func(verb string, n uint64) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.odd = odd
}

func (o *oddGPU) pinned() (sum uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.alive {
		sum += n
	}
	return sum
}

func (o *oddGPU) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	if err := o.ask("alloc "+k.String(), n); err != nil {
		return 0, err
	}
	a, err := o.Device.Alloc(k, n, f)
	if err == nil && k == gpu.KindHost {
		o.mu.Lock()
		o.alive[a] = n
		o.mu.Unlock()
	}
	return a, err
}

func (o *oddGPU) Free(a gpu.Addr) error {
	o.mu.Lock()
	delete(o.alive, a)
	o.mu.Unlock()
	return o.Device.Free(a)
}

func (o *oddGPU) Register(host uintptr, n uint64, f gpu.Flags) error {
	err := o.ask("register", n)
	if err == nil {
		err = o.Device.Register(host, n, f)
	}
	if err == nil {
		o.mu.Lock()
		o.alive[gpu.Addr(host)] = n
		o.mu.Unlock()
	}
	return err
}

func (o *oddGPU) Unregister(host uintptr) error {
	o.mu.Lock()
	delete(o.alive, gpu.Addr(host))
	o.mu.Unlock()
	return o.Device.Unregister(host)
}

func (o *oddGPU) NewStream() (gpu.Stream, error) {
	if err := o.ask("stream", 0); err != nil {
		return nil, err
	}
	s, err := o.Device.NewStream()
	if o.flags {
		return &flagStream{oddStream{s, o}}, err
	}
	return &oddStream{s, o}, err
}

func (o *oddGPU) NewEvent() (gpu.Event, error) {
	e, err := o.Device.NewEvent()
	return &oddEvent{e, o}, err
}

func (o *oddGPU) Load(ptx []byte) (gpu.Module, error) {
	if err := o.ask("load", 0); err != nil {
		return nil, err
	}
	return o.Device.Load(ptx)
}

type oddStream struct {
	gpu.Stream
	o *oddGPU
}

func (s *oddStream) Copy(dst, src gpu.Addr, n uint64) error {
	if err := s.o.ask("copy", n); err != nil {
		return err
	}
	return s.Stream.Copy(dst, src, n)
}

func (s *oddStream) Launch(f gpu.Func, grid, block gpu.Dim, args ...any) error {
	if err := s.o.ask("launch", 0); err != nil {
		return err
	}
	return s.Stream.Launch(f, grid, block, args...)
}

func (s *oddStream) Record(e gpu.Event) error {
	if err := s.o.ask("record", 0); err != nil {
		return err
	}
	return s.Stream.Record(e.(*oddEvent).Event)
}

func (s *oddStream) Synchronize() error {
	if err := s.o.ask("synchronize", 0); err != nil {
		return err
	}
	return s.Stream.Synchronize()
}

// A flagStream has CopyWrite, as CUDA's streams have. The copy and the flag are done
// when it returns.
type flagStream struct{ oddStream }

// errLost, as the answer to "write", loses a completion flag.
var errLost = errors.New("lost")

func (s *flagStream) CopyWrite(dst, src gpu.Addr, n uint64, at gpu.Addr, value uint32) error {
	if err := s.o.ask("copywrite", n); err != nil {
		return err
	}
	if err := s.Stream.Copy(dst, src, n); err != nil {
		return err
	}
	err := s.o.ask("write", 4)
	switch err {
	case nil:
		err = s.Stream.Write(at, uint64(value), 4)
	case errLost:
		err = nil
	}
	return errors.Join(err, s.Stream.Synchronize())
}

type oddEvent struct {
	gpu.Event
	o *oddGPU
}

// Synchronize fails only after the copies are through: a GPU's failure is
// known when its work is.
func (e *oddEvent) Synchronize() error {
	if err := e.Event.Synchronize(); err != nil {
		return err
	}
	return e.o.ask("event", 0)
}
