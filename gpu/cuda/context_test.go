//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

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
		c, err := d.NewContext(0)
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
