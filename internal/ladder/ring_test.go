package ladder

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// pinless is a GPU on a machine that has no memory to pin.
type pinless struct {
	gpu.Device
	tries int
}

func (p *pinless) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	if k == gpu.KindHost {
		p.tries++
		return 0, gpu.ErrOutOfMemory
	}
	return p.Device.Alloc(k, n, f)
}

func (p *pinless) Register(uintptr, uint64, gpu.Flags) error { return gpu.ErrOutOfMemory }

// Where no memory can be pinned the host route does it, and the receipt says why.
func TestNothingToPin(t *testing.T) {
	device, m := softDevice(t)
	poor := &pinless{Device: device}
	ladder := Open(poor, dev.Of(m), nil, Settings{})
	defer ladder.Close()
	const n = 300_000
	data := noisy(n, 3)
	file := adopt(t, "file", data)
	plan := ladder.Plan(FileSource(file))
	a, err := device.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(a)
	ops := []Op{{Src: FileSource(file), Mem: gpu.Span{Base: a, Len: n}, Kind: gpu.KindDevice}}
	for range 3 {
		res := make([]route.Receipt, 1)
		if err := plan.Run(context.Background(), ops, res); err != nil || res[0].Route != route.Host || res[0].Bytes != n || res[0].Host.Bytes != n {
			t.Fatalf("%v, %v", &res[0], err)
		}
		if d := res[0].Declined[route.Ring]; d == nil || d.Test != "pinned memory" || !strings.Contains(d.Evidence, "pin") {
			t.Errorf("the ring was declined for %v", d)
		}
		if d := res[0].Declined[route.Mapped]; d == nil || d.Test != "pinning" {
			t.Errorf("mapping was declined for %v", d)
		}
	}
	got := make([]byte, n)
	if err := device.CopyOut(got, a); err != nil || string(got) != string(data) {
		t.Errorf("wrong bytes, %v", err)
	}
	if poor.tries != 1 {
		t.Errorf("%d attempts to pin", poor.tries)
	}
	only, err := plan.Only(route.Ring)
	if err != nil {
		t.Fatal(err)
	}
	err = only.Run(context.Background(), ops, make([]route.Receipt, 1))
	if _, ok := errors.AsType[*route.RequireError](err); !ok {
		t.Errorf("with the ring required: %v", err)
	}
}

// The error of a batch names the file that it is about.
func TestRingNamesTheFile(t *testing.T) {
	dev, _ := softDevice(t)
	r := newRing(dev, nil, Settings{})
	defer r.Close()
	const n = 100_000
	a, err := dev.Alloc(gpu.KindDevice, 2*n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Free(a)
	good, bad := adopt(t, "good", noisy(n, 1)), adopt(t, "bad", noisy(n, 2))
	ops := []Op{
		{Src: FileSource(good), Mem: gpu.Span{Base: a, Len: n}, Kind: gpu.KindDevice},
		{Src: FileSource(bad), Mem: gpu.Span{Base: 1 << 62, Len: n}, Kind: gpu.KindDevice},
		{Src: FileSource(good), Mem: gpu.Span{Base: a, Off: n, Len: n}, Kind: gpu.KindDevice},
	}
	res := make([]route.Receipt, len(ops))
	err = r.Run(context.Background(), ops, res)
	if err == nil || !strings.Contains(err.Error(), bad.Name) || strings.Contains(err.Error(), good.Name) {
		t.Errorf("the error: %v", err)
	}
	if res[0].Bytes != n || res[1].Bytes != 0 || res[2].Bytes != n {
		t.Errorf("%d, %d and %d bytes", res[0].Bytes, res[1].Bytes, res[2].Bytes)
	}
}

// A measuredGPU knows the longest copy of its streams.
type measuredGPU struct {
	gpu.Device
	longest atomic.Uint64
}

type measuredStream struct {
	gpu.Stream
	d *measuredGPU
}

func (d *measuredGPU) NewStream() (gpu.Stream, error) {
	s, err := d.Device.NewStream()
	return &measuredStream{s, d}, err
}

func (s *measuredStream) Copy(dst, src gpu.Addr, n uint64) error {
	for {
		was := s.d.longest.Load()
		if n <= was || s.d.longest.CompareAndSwap(was, n) {
			return s.Stream.Copy(dst, src, n)
		}
	}
}

// A meddler runs a function when its file is asked for.
type meddler struct {
	Source
	meddle func()
}

func (m meddler) File() *storage.File {
	m.meddle()
	return m.Source.File()
}

// TestRingReplacedBeforeItIsUsed checks that a transfer that has found a ring, which is
// then replaced and closed, takes the new one.
func TestRingReplacedBeforeItIsUsed(t *testing.T) {
	device, _ := softDevice(t)
	r := newRing(device, nil, Settings{Slot: 256 << 10})
	defer r.Close()
	const n = 256 << 10
	data := noisy(n, 9)
	a, err := device.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(a)
	slot := 256 << 10
	src := meddler{FileSource(adopt(t, "file", data)), func() {
		slot = 384<<10 - slot // 128 and 256 KiB in turn
		if err := r.Configure(Settings{Slot: slot}); err != nil {
			t.Error(err)
		}
		r.old.Wait()
	}}
	op := Op{Src: src, Mem: gpu.Span{Base: a, Len: n}, Kind: gpu.KindDevice}
	for name, move := range map[string]func() (int64, error){
		"transfer": func() (int64, error) {
			res := make([]route.Receipt, 1)
			err := r.Run(context.Background(), []Op{op}, res)
			return res[0].Bytes, err
		},
		"shared read": func() (int64, error) {
			once := sync.OnceFunc(src.meddle) // the file is asked for each time
			op := op
			op.Src = meddler{src.Source, once}
			s, err := r.stage(&op, n)
			if err != nil {
				return 0, err
			}
			res := s.Wait()
			return res.N, res.Err
		},
	} {
		got := make([]byte, n)
		if err := device.CopyIn(a, got); err != nil {
			t.Fatal(err)
		}
		moved, err := move()
		if err != nil || moved != n {
			t.Errorf("%s: %d bytes, %v", name, moved, err)
		}
		if err := device.CopyOut(got, a); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: wrong bytes, %v", name, err)
		}
	}
}

// The size of slots holds for the next transfer, also if the ring has been used, and
// transfers go on while it changes. A size that cannot be is refused and changes nothing.
func TestSlotsOfARingInUse(t *testing.T) {
	soft, _ := softDevice(t)
	device := &measuredGPU{Device: soft}
	r := newRing(device, nil, Settings{Budget: 16 << 20, Slot: 256 << 10})
	defer r.Close()
	const n, callers = 2 << 20, 4
	data := noisy(n, 7)
	file := adopt(t, "file", data)
	a, err := device.Alloc(gpu.KindDevice, callers*n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(a)
	run := func(i uint64) error {
		res := make([]route.Receipt, 1)
		err := r.Run(context.Background(), []Op{{Src: FileSource(file), Mem: gpu.Span{Base: a, Off: i * n, Len: n}, Kind: gpu.KindDevice}}, res)
		if err == nil && res[0].Bytes != n {
			err = errors.New(res[0].String())
		}
		return err
	}
	for _, slot := range []int{256 << 10, 64 << 10, 128 << 10} {
		if err := r.Configure(Settings{Slot: slot}); err != nil {
			t.Fatal(err)
		}
		device.longest.Store(0)
		if err := run(0); err != nil {
			t.Fatal(err)
		}
		if got := device.longest.Load(); got != uint64(slot) {
			t.Errorf("with slots of %d the longest copy has %d bytes", slot, got)
		}
	}
	if err := r.Configure(Settings{Slot: 64 << 20}); err == nil || r.set.Slot != 128<<10 || run(0) != nil {
		t.Errorf("slots that exceed the budget: %v, now %d", err, r.set.Slot)
	}
	var wg sync.WaitGroup
	for i := range uint64(callers) {
		wg.Go(func() {
			for range 20 {
				if err := run(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 20 {
		if err := r.Configure(Settings{Slot: 64 << 10 << (i % 2)}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	got := make([]byte, callers*n)
	if err := device.CopyOut(got, a); err != nil || string(got) != strings.Repeat(string(data), callers) {
		t.Errorf("wrong bytes, %v", err)
	}
}

// TestRingLogs checks that the ring reports through the ladder's logger: here, that a
// second pipeline cannot be pinned.
func TestRingLogs(t *testing.T) {
	device, m := softDevice(t)
	var log syncBuffer
	l := Open(&onePipeline{Device: device}, dev.Of(m), slog.New(slog.NewTextHandler(&log, nil)), Settings{})
	defer l.Close()
	const n = 32 << 20
	a, err := device.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(a)
	src := FileSource(adopt(t, "file", noisy(n, 1)))
	p, err := l.Plan(src).Only(route.Ring)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 { // until a worker was in time
		ops := []Op{{Src: src, Mem: gpu.Span{Base: a, Len: n}, Kind: gpu.KindDevice}}
		if err := p.Run(context.Background(), ops, make([]route.Receipt, 1)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "continuing with fewer") {
			return
		}
	}
	t.Errorf("logged: %s", log.String())
}

// onePipeline is a GPU that can pin memory once.
type onePipeline struct {
	gpu.Device
	pinned atomic.Int32
}

func (p *onePipeline) Register(host uintptr, n uint64, f gpu.Flags) error {
	if p.pinned.Add(1) > 1 {
		return gpu.ErrOutOfMemory
	}
	return p.Device.Register(host, n, f)
}

func (p *onePipeline) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	if k == gpu.KindHost && p.pinned.Add(1) > 1 {
		return 0, gpu.ErrOutOfMemory
	}
	return p.Device.Alloc(k, n, f)
}

// A syncBuffer is written by several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// The settings reach the ring.
func TestRingSettings(t *testing.T) {
	device, _ := softDevice(t)
	r := newRing(device, nil, Settings{Slot: 100})
	if _, err := r.open(); err == nil || !strings.Contains(err.Error(), "slot size 100") {
		t.Errorf("a slot of 100 bytes: %v", err)
	}
}

// Poll mode reaches the ring when it is made, and later.
func TestRingPolls(t *testing.T) {
	device, _ := softDevice(t)
	const n = 1 << 20
	r := newRing(device, nil, Settings{Poll: n})
	defer r.Close()
	file := adopt(t, "file", noisy(n, 5))
	a, err := device.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(a)
	for i, poll := range []int64{n, 0, n, n - 1} {
		if i > 0 {
			if err := r.Configure(Settings{Poll: poll}); err != nil {
				t.Fatal(err)
			}
		}
		engine, err := r.open()
		if err != nil {
			t.Fatal(err)
		}
		before := engine.Polls()
		if err := r.Run(context.Background(), []Op{{Src: FileSource(file), Mem: gpu.Span{Base: a, Len: n}, Kind: gpu.KindDevice}}, make([]route.Receipt, 1)); err != nil {
			t.Fatal(err)
		}
		if polled := engine.Polls() > before; polled != (poll == n) {
			t.Errorf("poll mode up to %d bytes, a read of %d: polled for is %v", poll, n, polled)
		}
	}
}
