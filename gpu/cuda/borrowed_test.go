//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/gpu"
)

// A borrowed stream is used in the context of its borrower, whatever was current
// between the calls.
func TestBorrowedStream(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := openFake(t)
	const theirs = 0x7777
	f.call("cuCtxSetCurrent", theirs)
	s, err := f.drv.Borrow(2)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.drv.Borrow(2); again != s || err != nil {
		t.Errorf("the same stream is %v and %v, %v", s, again, err)
	}
	f.call("cuCtxSetCurrent", 0x1111)
	ran := false
	got := f.logged(func() {
		capturing, err := s.Capturing()
		if err := errors.Join(err, s.Do(func() { ran = true }), s.Wait(0x10, 1<<32, 8, gpu.CondGEQ)); err != nil || !capturing || !ran {
			t.Errorf("capturing %t, ran %t, %v", capturing, ran, err)
		}
	})
	want := []string{"cuStreamIsCapturing(0x2)", "cuLaunchHostFunc(0x2)", "cuStreamWaitValue64_v2(0x2, 0x10, 4294967296, 0)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if now, err := f.drv.Borrow(2); now != s || err != nil {
		t.Errorf("the context of the calls was not the borrower's: %v", err)
	}
	if err := s.Wait(0x10, 1, 3, gpu.CondGEQ); !errors.Is(err, gpu.ErrInvalidValue) {
		t.Errorf("3 bytes: %v", err)
	}
	f.answer("cuLaunchHostFunc", gpu.ErrInvalidHandle, 0)
	if err := s.Do(func() { t.Error("it ran") }); !errors.Is(err, gpu.ErrInvalidHandle) {
		t.Error(err)
	}
}

// Only a stream that depends on no other and has nothing to do waits at once. A query
// would say nothing about the streams that a blocking one waits for.
func TestWaitIfIdle(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := openFake(t)
	f.call("cuCtxSetCurrent", 0x7777)
	if got, want := f.logged(func() { _, _ = f.drv.Borrow(0x99); _, _ = f.drv.Borrow(2) }), []string{"cuCtxGetCurrent()", "cuStreamGetFlags(0x99)", "cuCtxGetCurrent()"}; !slices.Equal(got, want) {
		t.Errorf("borrowing a stream and a default one: %v, want %v", got, want)
	}
	own, err := f.device().NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	borrow := func(handle uintptr) gpu.BorrowedStream {
		f.call("cuCtxSetCurrent", 0x7777)
		s, err := f.drv.Borrow(handle)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	type stream interface {
		WaitIfIdle(gpu.Addr, uint64, int, gpu.Cond) (bool, error)
	}
	for _, c := range []struct {
		name, fails string
		s           stream
		code        gpu.Code
		idle        bool
		err         error
		calls       []string
	}{
		{"idle", "", borrow(0x99), 0, true, nil, []string{"cuStreamQuery(0x99)", "cuStreamWaitValue64_v2(0x99, 0x10, 1, 0)"}},
		{"busy", "cuStreamQuery", borrow(0x99), gpu.ErrNotReady, false, nil, []string{"cuStreamQuery(0x99)"}},
		{"failed", "cuStreamQuery", borrow(0x99), gpu.ErrIllegalAddress, false, gpu.ErrIllegalAddress, []string{"cuStreamQuery(0x99)"}},
		{"no wait", "cuStreamWaitValue64_v2", borrow(0x99), gpu.ErrNotReady, false, gpu.ErrNotReady, []string{"cuStreamQuery(0x99)", "cuStreamWaitValue64_v2(0x99, 0x10, 1, 0)"}},
		{"blocking", "", borrow(0xb10c), 0, false, nil, nil},
		{"default", "", borrow(2), 0, false, nil, nil},
		{"own", "", own.(stream), 0, true, nil, []string{"cuStreamQuery(0x51)", "cuStreamWaitValue64_v2(0x51, 0x10, 1, 0)"}},
	} {
		if c.fails != "" {
			f.answer(c.fails, c.code, 0)
		}
		got := f.logged(func() {
			if idle, err := c.s.WaitIfIdle(0x10, 1, 8, gpu.CondGEQ); idle != c.idle || !errors.Is(err, c.err) {
				t.Errorf("%s: idle %t, %v", c.name, idle, err)
			}
		})
		if diff := cmp.Diff(c.calls, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if _, err := borrow(0x99).WaitIfIdle(0x10, 1, 3, gpu.CondGEQ); !errors.Is(err, gpu.ErrInvalidValue) {
		t.Errorf("3 bytes: %v", err)
	}
	own.Close()
	if _, err := own.(stream).WaitIfIdle(0x10, 1, 8, gpu.CondGEQ); !errors.Is(err, gpu.ErrInvalidHandle) {
		t.Errorf("closed: %v", err)
	}
}
