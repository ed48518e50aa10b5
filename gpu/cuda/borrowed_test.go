//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"errors"
	"runtime"
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
