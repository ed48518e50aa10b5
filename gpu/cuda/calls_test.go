//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
)

const threeParams = `
.version 8.0
.target sm_70
.visible .entry three(.param .u64 a, .param .u32 b, .param .u64 c) { ret; }
.visible .entry none() { ret; }
`

// Every method must pass the right words in the right order.
func TestCalls(t *testing.T) {
	f := openFake(t)
	d := f.device()
	stream, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	s := stream.(*cuda.Stream)
	ev1, err1 := d.NewEvent()
	ev2, err2 := d.NewEvent()
	mod, err3 := d.Load([]byte(threeParams))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	fn, err1 := mod.Func("three")
	none, err2 := mod.Func("none")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	mem, err := d.Alloc(gpu.KindDevice, 4096, 0)
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"MemInfo", func() error {
			free, total, err := d.MemInfo()
			if free != 100 || total != 200 {
				t.Errorf("free %d, total %d", free, total)
			}
			return err
		}, []string{"cuMemGetInfo_v2()"}},
		{"Register", func() error { return d.Register(0x7000, 1<<33, gpu.RegisterReadOnly|gpu.RegisterPortable) }, []string{"cuMemHostRegister_v2(0x7000, 8589934592, 9)"}},
		{"Unregister", func() error { return d.Unregister(0x7000) }, []string{"cuMemHostUnregister(0x7000)"}},
		{"DevicePointer", func() error {
			a, err := d.DevicePointer(0x7000)
			if a != 0x8000 {
				t.Errorf("device pointer %v", a)
			}
			return err
		}, []string{"cuMemHostGetDevicePointer_v2(0x7000, 0)"}},
		{"SetSyncMemops", func() error { return d.SetSyncMemops(0x123, true) }, []string{"cuPointerSetAttribute(1, 6, 0x123)"}},
		{"clear SyncMemops", func() error { return d.SetSyncMemops(0x123, false) }, []string{"cuPointerSetAttribute(0, 6, 0x123)"}},
		{"CopyIn settles", func() error { return d.CopyIn(mem, make([]byte, 100)) }, []string{"cuMemcpyHtoD_v2(100)", "cuStreamSynchronize(0)"}},
		{"CopyOut", func() error { return d.CopyOut(make([]byte, 100), mem) }, []string{"cuMemcpyDtoH_v2(100)"}},
		{"Copy settles", func() error { return d.Copy(mem+8, mem, 8) }, []string{"cuMemcpy(8)", "cuStreamSynchronize(0)"}},
		{"Fill 1 settles", func() error { return d.Fill(mem, 0xabcd12, 1, 5) }, []string{"cuMemsetD8_v2(0x12, 5)", "cuStreamSynchronize(0)"}},
		{"Fill 2", func() error { return d.Fill(mem, 0xabcd12, 2, 5) }, []string{"cuMemsetD16_v2(0xcd12, 5)", "cuStreamSynchronize(0)"}},
		{"Fill 4", func() error { return d.Fill(mem, 0xabcd12, 4, 1<<40) }, []string{"cuMemsetD32_v2(0xabcd12, 1099511627776)", "cuStreamSynchronize(0)"}},
		{"Synchronize", d.Synchronize, []string{"cuCtxSynchronize()"}},
		{"FlushWrites", func() error { return d.FlushWrites(gpu.ScopeAllDevices) }, []string{"cuFlushGPUDirectRDMAWrites(0, 200)"}},
		{"Stream.Copy", func() error { return s.Copy(1<<40, 0x20, 1<<35) }, []string{"cuMemcpyAsync(0x10000000000, 0x20, 34359738368, 0x51)"}},
		{"Stream.Fill 1", func() error { return s.Fill(0x10, 0x1ff, 1, 3) }, []string{"cuMemsetD8Async(0x10, 0xff, 3, 0x51)"}},
		{"Stream.Fill 2", func() error { return s.Fill(0x10, 0x1ffff, 2, 3) }, []string{"cuMemsetD16Async(0x10, 0xffff, 3, 0x51)"}},
		{"Stream.Fill 4", func() error { return s.Fill(0x10, 0xfffffffe, 4, 3) }, []string{"cuMemsetD32Async(0x10, 0xfffffffe, 3, 0x51)"}},
		{"Stream.Write 4", func() error { return s.Write(0x10, 1<<32|7, 4) }, []string{"cuStreamWriteValue32_v2(0x51, 0x10, 7, 0)"}},
		{"Stream.Write 8", func() error { return s.Write(0x10, 1<<32|7, 8) }, []string{"cuStreamWriteValue64_v2(0x51, 0x10, 4294967303, 0)"}},
		{"Stream.Wait 4", func() error { return s.Wait(0x10, 9, 4, gpu.CondNOR) }, []string{"cuStreamWaitValue32_v2(0x51, 0x10, 9, 3)"}},
		{"Stream.Wait 8", func() error { return s.Wait(0x10, 1<<32, 8, gpu.CondEQ) }, []string{"cuStreamWaitValue64_v2(0x51, 0x10, 4294967296, 1)"}},
		{"Stream.Record", func() error { return s.Record(ev1) }, []string{"cuEventRecord(0xe1, 0x51)"}},
		{"Stream.WaitEvent", func() error { return s.WaitEvent(ev2) }, []string{"cuStreamWaitEvent(0x51, 0xe2, 0)"}},
		{"Stream.Synchronize", s.Synchronize, []string{"cuStreamSynchronize(0x51)"}},
		{"Stream.Done", func() error {
			if done, err := s.Done(); !done {
				t.Errorf("not done: %v", err)
			}
			return nil
		}, []string{"cuStreamQuery(0x51)"}},
		{"Stream.CopyBatch", func() error {
			return s.CopyBatch([]gpu.Addr{0x10, 0x20}, []gpu.Addr{0x30, 0x40}, []uint64{5, 1 << 33})
		}, []string{
			"cuMemcpyBatchAsync(2)", "copy(0x10, 0x30, 5)", "copy(0x20, 0x40, 8589934592)",
			"attributes(1: order 1 locations 0 0 flags 0 from 0, 0x51)",
		}},
		{"Event.Done", func() error { _, err := ev1.Done(); return err }, []string{"cuEventQuery(0xe1)"}},
		{"Event.Synchronize", ev2.Synchronize, []string{"cuEventSynchronize(0xe2)"}},
		{"Event.Since", func() error {
			since, err := ev2.Since(ev1)
			if since != 1250*time.Microsecond {
				t.Errorf("since %v", since)
			}
			return err
		}, []string{"cuEventElapsedTime(0xe1, 0xe2)"}},
		{"Load", func() error {
			m, err := d.Load([]byte(threeParams))
			if err != nil {
				return err
			}
			return m.Close()
		}, []string{fmt.Sprintf("cuModuleLoadDataEx(%d bytes, 2 options 5 6)", len(threeParams)), "cuModuleUnload(0x30d)"}},
		{"Func", func() error { _, err := mod.Func("three"); return err }, []string{"cuModuleGetFunction(0x30d, three)"}},
		{"Launch", func() error {
			return s.Launch(fn, gpu.Dim{X: 1, Y: 2, Z: 3}, gpu.Dim{X: 4, Y: 5, Z: 6}, gpu.Addr(1<<40), uint32(1<<31), int64(77))
		}, []string{"cuLaunchKernel(0xf0, 1 2 3, 4 5 6, 0, 0x51, 1099511627776 2147483648 77, (nil))"}},
		{"Launch without arguments", func() error { return s.Launch(none, gpu.Dim{}, gpu.Dim{X: 32}) }, []string{"cuLaunchKernel(0xf0, 1 1 1, 32 1 1, 0, 0x51, none, (nil))"}},
		{"IPCHandle", func() error {
			h, err := d.IPCHandle(0x55)
			if h[0] != 0 || h[63] != 63 {
				t.Errorf("handle %v", h)
			}
			return err
		}, []string{"cuIpcGetMemHandle(0x55)"}},
		{"DMA-buf", func() error {
			file, err := d.Export(0x10, 1<<34, gpu.ExportDMABuf)
			if err != nil {
				return err
			}
			return file.Close()
		}, []string{"cuMemGetHandleForAddressRange(0x10, 17179869184, 1, 0)"}},
	} {
		got := f.logged(func() {
			if err := tt.do(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if v, err := d.Attribute(gpu.AttrMultiprocessors); v != 132 || err != nil {
		t.Errorf("attribute %d, %v", v, err)
	}
	if _, err := d.Attribute(9999); !errors.Is(err, gpu.ErrInvalidValue) {
		t.Errorf("unknown attribute: %v", err)
	}
	if d.Context() != 0xc1 {
		t.Errorf("context %#x", d.Context())
	}
	if err := errors.Join(s.Close(), ev1.Close(), ev2.Close(), mod.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	f.wantNothingLive()
}

func TestNewestNames(t *testing.T) {
	f := openFake(t, "CTX_V4")
	d := f.device()
	defer d.Close()
	stream, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	got := f.logged(func() {
		c, err := d.NewContext(gpu.ContextMapHost)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := stream.(*cuda.Stream).CopyBatch([]gpu.Addr{1}, []gpu.Addr{2}, []uint64{3}); err != nil {
			t.Error(err)
		}
	})
	want := []string{
		"cuCtxCreate_v4((nil), 0x8, 1)", "cuCtxPopCurrent_v2()", "cuCtxDestroy_v2()",
		"cuMemcpyBatchAsync_v2(1)", "copy(0x1, 0x2, 3)", "attributes(1: order 1 locations 0 0 flags 0 from 0, 0x51)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrors(t *testing.T) {
	f := openFake(t)
	d := f.device()
	defer d.Close()
	f.answer("cuMemAlloc_v2", gpu.ErrOutOfMemory, 0)
	_, err := d.Alloc(gpu.KindDevice, 100, 0)
	e, ok := errors.AsType[*gpu.Error](err)
	if !ok {
		t.Fatalf("%T %v", err, err)
	}
	if e.Op != "cuMemAlloc(100)" || e.Code != gpu.ErrOutOfMemory || !strings.HasSuffix(e.File, "calls_test.go") || e.Line == 0 {
		t.Errorf("got %+v", e)
	}
	if want := "cuMemAlloc(100) failed: code = CUDA_ERROR_OUT_OF_MEMORY, message = out of memory"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}

	f.answer("cuMemAlloc_v2", 12345, 0)
	if _, err := d.Alloc(gpu.KindDevice, 100, 0); gpu.CodeOf(err) != 12345 || !strings.Contains(err.Error(), "CUDA_ERROR_FAKE: made up") {
		t.Errorf("unknown code: %v", err)
	}
	f.answer("cuCtxSetCurrent", gpu.ErrContextDestroyed, 0)
	if err := d.CopyOut(nil, 0); !errors.Is(err, gpu.ErrContextDestroyed) {
		t.Errorf("set current: %v", err)
	}
	f.answer("cuStreamSynchronize", gpu.ErrIllegalAddress, 0)
	if err := d.Fill(0, 0, 4, 1); !errors.Is(err, gpu.ErrIllegalAddress) || !strings.Contains(err.Error(), "cuStreamSynchronize") {
		t.Errorf("settle: %v", err)
	}
	_, err = d.Load([]byte("broken"))
	if !errors.Is(err, gpu.ErrInvalidPTX) || !strings.Contains(err.Error(), "line 5; fatal   : broken") {
		t.Errorf("broken PTX: %v", err)
	}
	if _, err := d.Load([]byte("no PTX")); !errors.Is(err, gpu.ErrInvalidImage) {
		t.Errorf("not PTX: %v", err)
	}
	if _, err := d.Load(nil); !errors.Is(err, gpu.ErrInvalidImage) {
		t.Errorf("no image: %v", err)
	}
}

func TestBadInput(t *testing.T) {
	f := openFake(t)
	d := f.device()
	stream, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	s := stream.(*cuda.Stream)
	mod, err := d.Load([]byte(threeParams))
	if err != nil {
		t.Fatal(err)
	}
	fn, err := mod.Func("three")
	if err != nil {
		t.Fatal(err)
	}
	alloc := func(k gpu.Kind, n uint64, fl gpu.Flags) error { _, err := d.Alloc(k, n, fl); return err }
	one := gpu.Dim{X: 1}
	for _, tt := range []struct {
		name string
		err  error
		want gpu.Code
	}{
		{"size 0", alloc(gpu.KindDevice, 0, 0), gpu.ErrInvalidValue},
		{"host size 0", alloc(gpu.KindHost, 0, 0), gpu.ErrInvalidValue},
		{"virtual size 0", alloc(gpu.KindVirtual, 0, 0), gpu.ErrInvalidValue},
		{"virtual overflow", alloc(gpu.KindVirtual, 1<<64-1, 0), gpu.ErrOutOfMemory},
		{"kind none", alloc(gpu.KindNone, 1, 0), gpu.ErrInvalidValue},
		{"kind registered", alloc(gpu.KindRegistered, 1, 0), gpu.ErrInvalidValue},
		{"unknown kind", alloc(77, 1, 0), gpu.ErrInvalidValue},
		{"device flags", alloc(gpu.KindDevice, 1, 1), gpu.ErrInvalidValue},
		{"virtual flags", alloc(gpu.KindVirtual, 1, 1), gpu.ErrInvalidValue},
		{"free of nothing", d.Free(0), gpu.ErrInvalidValue},
		{"free of a foreign address", d.Free(0x1234), gpu.ErrInvalidValue},
		{"fill width", d.Fill(0, 0, 3, 1), gpu.ErrInvalidValue},
		{"stream fill width", s.Fill(0, 0, 8, 1), gpu.ErrInvalidValue},
		{"write width", s.Write(0, 0, 2), gpu.ErrInvalidValue},
		{"wait width", s.Wait(0, 0, 16, gpu.CondEQ), gpu.ErrInvalidValue},
		{"batch of nothing", s.CopyBatch(nil, nil, nil), gpu.ErrInvalidValue},
		{"batch of different lengths", s.CopyBatch([]gpu.Addr{1}, nil, []uint64{1}), gpu.ErrInvalidValue},
		{"no function", s.Do(nil), gpu.ErrInvalidValue},
		{"no event", s.Record(nil), gpu.ErrInvalidHandle},
		{"wait for no event", s.WaitEvent(nil), gpu.ErrInvalidHandle},
		{"no kernel", s.Launch(nil, one, one), gpu.ErrInvalidHandle},
		{"too few arguments", s.Launch(fn, one, one, uint64(1)), gpu.ErrInvalidValue},
		{"argument of the wrong size", s.Launch(fn, one, one, uint64(1), uint64(1), uint64(1)), gpu.ErrInvalidValue},
		{"argument of the wrong type", s.Launch(fn, one, one, uint64(1), "x", uint64(1)), gpu.ErrInvalidValue},
		{"export form", second(d.Export(1, 1, 99)), gpu.ErrInvalidValue},
		{"export size 0", second(d.Export(1, 0, gpu.ExportPosixFD)), gpu.ErrInvalidValue},
		{"unknown kernel", second(mod.Func("four")), gpu.ErrNotFound},
	} {
		if got := gpu.CodeOf(tt.err); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
		}
	}
	if err := errors.Join(s.Close(), mod.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	f.wantNothingLive()
}

func second[T any](_ T, err error) error { return err }

func TestAfterClose(t *testing.T) {
	f := openFake(t)
	d := f.device()
	s, err1 := d.NewStream()
	e, err2 := d.NewEvent()
	m, err3 := d.Load([]byte(threeParams))
	s2, err4 := d.NewStream()
	e2, err5 := d.NewEvent()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	fn, err := m.Func("none")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), e.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	// No handle of something closed may reach the driver.
	log := f.logged(func() {
		for name, err := range map[string]error{
			"stream copy": s.Copy(1, 2, 3), "stream close": s.Close(), "stream sync": s.Synchronize(), "stream done": second(s.Done()),
			"event close": e.Close(), "event sync": e.Synchronize(), "event done": second(e.Done()),
			"record": s2.Record(e), "wait": s2.WaitEvent(e), "since": second(e2.Since(e)), "since of closed": second(e.Since(e2)),
			"launch": s2.Launch(fn, gpu.Dim{}, gpu.Dim{}), "func": second(m.Func("none")), "module close": m.Close(),
		} {
			if !errors.Is(err, gpu.ErrInvalidHandle) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	if len(log) != 0 {
		t.Errorf("calls after close: %q", log)
	}
	if err := d.Close(); err != nil { // takes s2 and e2 along
		t.Fatal(err)
	}
	log = f.logged(func() {
		for name, err := range map[string]error{
			"alloc": second(d.Alloc(gpu.KindDevice, 1, 0)), "virtual": second(d.Alloc(gpu.KindVirtual, 1, 0)), "free": d.Free(1),
			"copy in": d.CopyIn(1, nil), "copy": d.Copy(1, 2, 3), "fill": d.Fill(1, 2, 4, 3), "pointer": second(d.Pointer(1)),
			"stream": second(d.NewStream()), "context": second(d.NewContext(0)), "bind": second(d.Bind()), "sync": d.Synchronize(),
			"close": d.Close(), "stream copy": s2.Copy(1, 2, 3), "stream close": s2.Close(), "event": e2.Synchronize(),
			"record": s2.Record(e2), "launch": s2.Launch(fn, gpu.Dim{}, gpu.Dim{}), "func": second(m.Func("none")),
		} {
			if !errors.Is(err, gpu.ErrContextDestroyed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	if len(log) != 0 {
		t.Errorf("calls after close: %q", log)
	}
	f.wantNothingLive()
}

func TestStreamNotReady(t *testing.T) {
	f := openFake(t)
	d := f.device()
	defer d.Close()
	s, err1 := d.NewStream()
	e, err2 := d.NewEvent()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	f.answer("cuStreamQuery", gpu.ErrNotReady, 0)
	if done, err := s.Done(); done || err != nil {
		t.Errorf("stream: %v, %v", done, err)
	}
	f.answer("cuEventQuery", gpu.ErrNotReady, 0)
	if done, err := e.Done(); done || err != nil {
		t.Errorf("event: %v, %v", done, err)
	}
	f.answer("cuStreamQuery", gpu.ErrLaunchFailed, 0)
	if _, err := s.Done(); !errors.Is(err, gpu.ErrLaunchFailed) {
		t.Errorf("failed stream: %v", err)
	}
}

func TestHostFunctions(t *testing.T) {
	f := openFake(t)
	d := f.device()
	defer d.Close()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []int
	for i := range 50 { // the fake runs them at once, each on a thread of its own
		if err := s.Do(func() { got = append(got, i) }); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range got {
		if g != i {
			t.Fatalf("order %v", got)
		}
	}
	if len(got) != 50 {
		t.Errorf("%d of 50 functions ran", len(got))
	}
	f.answer("cuLaunchHostFunc", gpu.ErrInvalidHandle, 0)
	if err := s.Do(func() { t.Error("ran") }); !errors.Is(err, gpu.ErrInvalidHandle) {
		t.Error(err)
	}
}

// Goroutines of several contexts share threads: the context that is current
// must always be that of the call.
func TestContextsOfGoroutines(t *testing.T) {
	f := openFake(t)
	var devices []gpu.Device
	for i := range 2 {
		d, err := f.drv.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.NewContext(gpu.ContextSchedAuto)
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, d, c)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		d := devices[g%len(devices)]
		wg.Go(func() {
			a, err := d.Alloc(gpu.KindDevice, 64, 0)
			if err != nil {
				t.Error(err)
				return
			}
			out := make([]byte, 64)
			for i := range 200 {
				in := bytes.Repeat([]byte{byte(g), byte(i)}, 32)
				if err := errors.Join(d.CopyIn(a, in), d.CopyOut(out, a)); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(in, out) {
					t.Errorf("goroutine %d read %v", g, out[:4])
				}
			}
			if err := d.Free(a); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range devices {
		if err := devices[len(devices)-1-i].Close(); err != nil {
			t.Error(err)
		}
	}
	if n := f.call("fake_wrong_context"); n != 0 {
		t.Errorf("%d calls with another context current", n)
	}
	f.wantNothingLive()
}

func TestBind(t *testing.T) {
	f := openFake(t)
	d, d0 := f.device(), must(f.drv.Open(0))(t)
	defer d.Close()
	defer d0.Close()
	outer, err := d0.Bind()
	if err != nil {
		t.Fatal(err)
	}
	before := f.call("fake_depth")
	unbind, err := d.Bind()
	if err != nil {
		t.Fatal(err)
	}
	if got := f.call("fake_current"); got != d.Context() {
		t.Errorf("current is %#x", got)
	}
	if _, _, err := d.MemInfo(); err != nil { // must not disturb the stack
		t.Error(err)
	}
	unbind()
	unbind() // once is enough
	if got := f.call("fake_current"); got != 0xc0 {
		t.Errorf("current after unbind is %#x", got)
	}
	if got := f.call("fake_depth"); got != before {
		t.Errorf("depth %d, before %d", got, before)
	}
	outer()
	f.answer("cuCtxPushCurrent_v2", gpu.ErrInvalidContext, 0)
	if _, err := d.Bind(); !errors.Is(err, gpu.ErrInvalidContext) {
		t.Error(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestHotCallsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector")
	}
	f := openFake(t)
	d := f.device()
	defer d.Close()
	s := must(d.NewStream())(t)
	e := must(d.NewEvent())(t)
	a := must(d.Alloc(gpu.KindDevice, 4096, 0))(t)
	buf := make([]byte, 4096)
	for name, do := range map[string]func(){
		"CopyIn":       func() { _ = d.CopyIn(a, buf) },
		"CopyOut":      func() { _ = d.CopyOut(buf, a) },
		"Copy":         func() { _ = d.Copy(a, a+8, 8) },
		"Fill":         func() { _ = d.Fill(a, 1, 4, 8) },
		"Stream.Copy":  func() { _ = s.Copy(a, a+8, 8) },
		"Stream.Write": func() { _ = s.Write(a, 1, 4) },
		"Record":       func() { _ = s.Record(e) },
		"Event.Done":   func() { _, _ = e.Done() },
		"Synchronize":  func() { _ = s.Synchronize() },
	} {
		if n := testing.AllocsPerRun(200, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkOverhead is what a call costs on top of the driver's own time.
func BenchmarkOverhead(b *testing.B) {
	f := openFake(b)
	d := f.device()
	defer d.Close()
	s := must(d.NewStream())(b)
	a := must(d.Alloc(gpu.KindDevice, 4096, 0))(b)
	buf := make([]byte, 8)
	m := must(d.Load([]byte(threeParams)))(b)
	fn := must(m.Func("three"))(b)
	for _, bb := range []struct {
		name string
		do   func() error
	}{
		{"CopyOut", func() error { return d.CopyOut(buf, a) }},
		{"CopyIn", func() error { return d.CopyIn(a, buf) }},
		{"StreamCopy", func() error { return s.Copy(a, a+8, 8) }},
		{"Launch", func() error { return s.Launch(fn, gpu.Dim{}, gpu.Dim{}, a, uint32(1), uint64(2)) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bb.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
