//go:build linux && (amd64 || arm64) && !nodl

package dl

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// compile makes a shared library of testdata/callee.c.
func compile(t testing.TB, name string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc to compile a library to load")
	}
	so := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", so, "testdata/callee.c", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return so
}

func callee(t testing.TB) *Library {
	t.Helper()
	l, err := OpenPrivate(compile(t, "libcallee.so"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func sym(t testing.TB, l *Library, name string) Func {
	t.Helper()
	f, err := l.Sym(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOpenTriesNamesInOrder(t *testing.T) {
	first, second := compile(t, "libfirst.so"), compile(t, "libsecond.so")
	l, err := Open("libdoesnotexist-culvert.so.1", first, second)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Path() != first {
		t.Errorf("opened %q, want %q", l.Path(), first)
	}
}

func TestOpenErrorListsEveryName(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "libgarbage.so")
	if err := os.WriteFile(garbage, []byte("no ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open("libnone-culvert.so.1", "/nowhere/libnone.so", garbage)
	oe, ok := errors.AsType[*OpenError](err)
	if !ok {
		t.Fatalf("error is %T %v", err, err)
	}
	if len(oe.Tried) != 3 {
		t.Errorf("tried %d names, want 3", len(oe.Tried))
	}
	// One reason for two names, and each name once.
	want := "no library could be loaded: libnone-culvert.so.1, /nowhere/libnone.so: cannot open shared object file: No such file or directory; " +
		garbage + ": file too short"
	if err.Error() != want {
		t.Errorf("it says\n%s, want\n%s", err, want)
	}
}

func TestOpenPrivateWantsAPath(t *testing.T) {
	if _, err := OpenPrivate("libc.so.6"); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("got %v, want an error about the path", err)
	}
}

func TestPathOfBareName(t *testing.T) {
	l, err := Open("libc.so.6")
	if err != nil {
		t.Skipf("needs glibc: %v", err)
	}
	if p := l.Path(); !filepath.IsAbs(p) {
		t.Errorf("path %q of libc.so.6 is not absolute", p)
	}
}

func TestSymbols(t *testing.T) {
	l := callee(t)
	if !l.Has("callee_marker") {
		t.Error("marker not found")
	}
	if l.Has("callee_nothing") {
		t.Error("found a symbol that is not there")
	}
	_, err := l.Sym("callee_nothing")
	se, ok := errors.AsType[*SymbolError](err)
	if !ok || se.Symbol != "callee_nothing" || se.Library != l.Path() {
		t.Errorf("got %v", err)
	}
}

func TestCallPassesArgumentsInOrder(t *testing.T) {
	f := sym(t, callee(t), "callee_twelve")
	if got := f.Call(1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3); got != 123456789123 {
		t.Errorf("got %d", got)
	}
}

func TestCallTooManyArguments(t *testing.T) {
	f := sym(t, callee(t), "callee_twelve")
	defer func() {
		if recover() == nil {
			t.Error("13 arguments were taken")
		}
	}()
	f.Call(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
}

// A struct of 8 bytes, such as CUfileError_t, is returned in one word.
func TestCallReturnsAStruct(t *testing.T) {
	minus := -3
	r := sym(t, callee(t), "callee_pair").Call(5030, uintptr(minus))
	if int32(r) != 5030 || int32(r>>32) != -3 {
		t.Errorf("pair is %d, %d", int32(r), int32(r>>32))
	}
}

func TestCallErrno(t *testing.T) {
	l := callee(t)
	fail, keep := sym(t, l, "callee_fail"), sym(t, l, "callee_keep_errno")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				want := syscall.Errno(1 + (g+i)%100)
				r, errno := fail.CallErrno(uintptr(want))
				if int32(r) != -1 || errno != want {
					t.Errorf("got %d, %v, want -1, %v", int32(r), errno, want)
					return
				}
				if r, errno := keep.CallErrno(); r != 7 || errno != 0 {
					t.Errorf("stale errno %v after a call that set none", errno)
					return
				}
				if i%100 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
}

func TestCallbackFromForeignThread(t *testing.T) {
	var sum atomic.Uint64
	cb := Callback(func(arg uintptr) { sum.Add(uint64(arg)) })
	thread := sym(t, callee(t), "callee_thread")
	for i := range 20 {
		if r := thread.Call(uintptr(cb), uintptr(i)); r != 0 {
			t.Fatalf("pthread_create: %v", syscall.Errno(r))
		}
	}
	if sum.Load() != 190 {
		t.Errorf("sum of callbacks is %d, want 190", sum.Load())
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector")
	}
	l := callee(t)
	twelve, fail := sym(t, l, "callee_twelve"), sym(t, l, "callee_fail")
	for name, f := range map[string]func(){
		"Call":      func() { twelve.Call(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) },
		"CallErrno": func() { fail.CallErrno(2) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestString(t *testing.T) {
	if s := String(nil); s != "" {
		t.Errorf("nil is %q", s)
	}
	b := []byte("text\x00more")
	if s := String(&b[0]); s != "text" {
		t.Errorf("got %q", s)
	}
}

func TestLibraryIsUnloaded(t *testing.T) {
	so := compile(t, "libunload.so")
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(maps), so)
	}
	l, err := Open(so)
	if err != nil {
		t.Fatal(err)
	}
	if !mapped() {
		t.Fatal("not mapped after Open")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if mapped() {
		t.Error("still mapped after Close")
	}
}

func BenchmarkCall(b *testing.B) {
	l := callee(b)
	twelve, fail := sym(b, l, "callee_twelve"), sym(b, l, "callee_fail")
	b.Run("args=0", func(b *testing.B) {
		f := sym(b, l, "callee_keep_errno")
		for b.Loop() {
			f.Call()
		}
	})
	b.Run("args=12", func(b *testing.B) {
		for b.Loop() {
			twelve.Call(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
		}
	})
	b.Run("errno", func(b *testing.B) {
		for b.Loop() {
			fail.CallErrno(2)
		}
	})
}
