//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
)

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
	if e.Op != "cuMemAlloc(100)" || e.Code != gpu.ErrOutOfMemory || !strings.HasSuffix(e.File, "errors_test.go") || e.Line == 0 {
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
		t.Errorf("wait: %v", err)
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
	s := must(d.NewStream())(t).(*cuda.Stream)
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
		{"fill size", d.Fill(0, 0, 4, 1<<62), gpu.ErrInvalidValue},
		{"stream fill size", s.Fill(0, 0, 2, 1<<63), gpu.ErrInvalidValue},
		{"stream fill width", s.Fill(0, 0, 8, 1), gpu.ErrInvalidValue},
		{"write width", s.Write(0, 0, 2), gpu.ErrInvalidValue},
		{"wait width", s.Wait(0, 0, 16, gpu.CondEQ), gpu.ErrInvalidValue},
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

// Copy and store are one call to C, but each answers for itself.
func TestCopyWriteErrors(t *testing.T) {
	f := openFake(t)
	d := f.device()
	s := must(d.NewStream())(t).(*cuda.Stream)
	for _, name := range []string{"cuMemcpyAsync", "cuStreamWriteValue32_v2"} {
		f.answer(name, gpu.ErrIllegalAddress, 0)
		err := s.CopyWrite(0x10, 0x20, 3, 0x30, 7)
		if gpu.CodeOf(err) != gpu.ErrIllegalAddress || !strings.Contains(err.Error(), strings.TrimSuffix(name, "_v2")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.CopyWrite(0x10, 0x20, 3, 0x30, 7); gpu.CodeOf(err) != gpu.ErrInvalidHandle {
		t.Errorf("closed: %v", err)
	}
}
