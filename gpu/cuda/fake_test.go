//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"os"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	"github.com/culvert-io/culvert/internal/dl"
)

// A fake is testdata/fakecuda.c as a loaded library, and the driver on it.
type fake struct {
	t   testing.TB
	lib *dl.Library
	drv *cuda.Driver
}

// compileFake makes a variant of the library, one file per test so that no
// state is shared.
func compileFake(t testing.TB, defines ...string) string {
	t.Helper()
	flags := []string{"-shared", "-fPIC", "-Wl,-Bsymbolic"}
	for _, d := range defines {
		flags = append(flags, "-D"+d)
	}
	return compileC(t, "fakecuda.c", "libcuda.so.1", flags...)
}

func openFake(t testing.TB, defines ...string) *fake {
	t.Helper()
	so := compileFake(t, defines...)
	t.Setenv(cuda.EnvLibrary, so)
	drv, err := cuda.Open()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := dl.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	return &fake{t, lib, drv}
}

func (f *fake) call(name string, args ...uintptr) uintptr {
	f.t.Helper()
	fn, err := f.lib.Sym(name)
	if err != nil {
		f.t.Fatal(err)
	}
	return fn.Call(args...)
}

func (f *fake) text(name string) string { return dl.String(bytePointer(f.call(name))) }

// answer lets the next call of a function, after some that work, fail. A
// negative code is for ever.
func (f *fake) answer(function string, code gpu.Code, after int) {
	name := append([]byte(function), 0)
	f.call("fake_answer", addressOf(name), uintptr(code), uintptr(after))
}

// logged returns the driver calls that do makes, without cuCtxSetCurrent.
func (f *fake) logged(do func()) []string {
	f.call("fake_log_start")
	do()
	log := strings.TrimSpace(f.text("fake_log"))
	if log == "" {
		return nil
	}
	return strings.Split(log, "\n")
}

// device opens GPU 1, so that a number is not 0 by accident.
func (f *fake) device() *cuda.Device {
	f.t.Helper()
	d, err := f.drv.Open(1)
	if err != nil {
		f.t.Fatal(err)
	}
	return d.(*cuda.Device)
}

const nothingLive = "memory 0 handles 0 ranges 0 maps 0 streams 0 events 0 modules 0 contexts 0 primary 0"

// wantNothingLive fails when the library holds anything.
func (f *fake) wantNothingLive() {
	f.t.Helper()
	if got := f.text("fake_live"); got != nothingLive {
		f.t.Errorf("left over: %s", got)
	}
}

func openFDs(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
