package gdrdrv_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
)

// call issues a request with a struct as its argument.
func call[T any](f kernel.File, req uintptr, arg *T) error { return f.Ioctl(req, unsafe.Pointer(arg)) }

// playFiles runs one sequence: a process with an open file whose threads pin,
// map and unpin, while the owner frees, and the file is closed or the process
// ends.
func playFiles(t *testing.T, w *fixture, rng *rand.Rand, seed uint64) []string {
	t.Helper()
	p := &p2p.Process{PID: 2}
	va := w.Alloc(block)
	w.Check(w.RM.Give(p, gpu.Addr(va)))
	f := w.m.Open(p)
	bad := ""
	expect := func(what string, err error, allowed ...syscall.Errno) {
		for _, a := range allowed {
			if errors.Is(err, a) {
				return
			}
		}
		if err != nil {
			bad = what + ": " + err.Error()
		}
	}
	user := func() {
		pin := abi.PinBufferParams{Addr: va, Size: page}
		if err := call(f, abi.GDRDRV_IOC_PIN_BUFFER, &pin); err != nil {
			expect("pin", err, syscall.EINVAL, syscall.EBADF)
			return
		}
		m, err := f.Mmap(int64(pin.Handle)*abi.HOST_PAGE, page, rw)
		if err != nil {
			expect("mmap", err, syscall.EINVAL) // the callback was faster, or close
		} else {
			_, _ = load(dev.Bytes(m), 0) // a fault or a byte, never a crash
			w.Points.At("mapped", pin.Handle)
			expect("munmap", m.Unmap())
		}
		expect("unpin", call(f, abi.GDRDRV_IOC_UNPIN_BUFFER, &abi.UnpinBufferParams{Handle: pin.Handle}), syscall.EINVAL)
		if err := call(f, abi.GDRDRV_IOC_UNPIN_BUFFER, &abi.UnpinBufferParams{Handle: pin.Handle}); !errors.Is(err, syscall.EINVAL) {
			bad = "a handle was unpinned twice"
		}
	}
	actors := []func(){user, func() { w.Free(va) }}
	if rng.IntN(2) == 0 {
		actors = append(actors, user)
	}
	end, wait := []func(){f.Release, p.Exit}[rng.IntN(2)], rng.IntN(8)
	actors = append(actors, func() {
		for i := range wait {
			w.Points.At("end", uint64(i))
		}
		end()
	})
	trace, err := w.Points.Run(seed, synctest.Wait, actors...)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	f.Release()
	p.Exit()
	if n, live, used := w.m.Pins(), w.RM.Live(), w.RM.BAR1Used(0); bad != "" || n != 0 || live != 0 || used != 0 {
		t.Fatalf("seed %d: %q; left over: %d buffers, %d pins, %d bytes of BAR1\nafter %q", seed, bad, n, live, used, trace)
	}
	return trace
}

// Invariants D: no handle of one process works in another.
func TestNoHandleWorksInAnotherProcess(t *testing.T) {
	w := newFixture(t, soft.Config{}, false)
	defer w.close()
	va := w.Alloc(block)
	f := w.m.Open(w.RM.Self)
	defer f.Release()
	pin := abi.PinBufferParams{Addr: va, Size: page}
	w.Check(call(f, abi.GDRDRV_IOC_PIN_BUFFER, &pin))
	inherited := f.By(&p2p.Process{PID: 2})
	for _, req := range []uintptr{abi.GDRDRV_IOC_GET_VERSION, abi.GDRDRV_IOC_UNPIN_BUFFER, 0xC008DA09} {
		if err := call(inherited, req, &pin); !errors.Is(err, syscall.EACCES) {
			t.Errorf("request %#x: %v", req, err)
		}
	}
	if err := call(inherited, 0xC028DB01, &pin); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("wrong type: %v", err)
	}
	if _, err := inherited.Mmap(0, page, rw); !errors.Is(err, syscall.EACCES) {
		t.Errorf("mmap: %v", err)
	}
	if f.By(w.RM.Self) != kernel.File(f) {
		t.Error("the owner's own file is foreign to it")
	}
	other := w.m.Open(w.RM.Self)
	defer other.Release()
	if err := call(other, abi.GDRDRV_IOC_UNPIN_BUFFER, &abi.UnpinBufferParams{Handle: pin.Handle}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the handle of another file: %v", err)
	}
	f.Release()
	w.Free(va)
}

// An answer that does not reach the program leaves nothing pinned.
func TestUntoldPinIsUndone(t *testing.T) {
	w := newFixture(t, soft.Config{}, false)
	defer w.close()
	va := w.Alloc(block)
	f := w.m.Open(w.RM.Self)
	defer f.Release()
	// Memory that can be read and not written.
	arg := abi.PinBufferParams{Addr: va, Size: page}
	ro := readOnly(t, unsafe.Slice((*byte)(unsafe.Pointer(&arg)), unsafe.Sizeof(arg)))
	if err := f.Ioctl(abi.GDRDRV_IOC_PIN_BUFFER, unsafe.Pointer(&ro[0])); !errors.Is(err, syscall.EFAULT) || w.m.Pins() != 0 {
		t.Errorf("%v, %d pins", err, w.m.Pins())
	}
	arg2 := abi.PinBufferParamsV2{Addr: va, Size: page}
	ro = readOnly(t, unsafe.Slice((*byte)(unsafe.Pointer(&arg2)), unsafe.Sizeof(arg2)))
	if err := f.Ioctl(abi.GDRDRV_IOC_PIN_BUFFER_V2, unsafe.Pointer(&ro[0])); !errors.Is(err, syscall.EFAULT) || w.m.Pins() != 0 {
		t.Errorf("%v, %d pins", err, w.m.Pins())
	}
	w.Free(va)
}

func TestLoadTwice(t *testing.T) {
	w := newFixture(t, soft.Config{}, false)
	defer w.close()
	if _, err := gdrdrv.New(w.OS, gdrdrv.Config{RM: w.RM}); err == nil {
		t.Error("the module was loaded twice")
	}
}

// Whatever a program sends, the emulated module answers with an errno and keeps its books.
func FuzzIoctl(f *testing.F) {
	w := newFixture(f, soft.Config{}, true)
	va := w.Alloc(block)
	file := w.m.Open(w.RM.Self)
	f.Add(uint64(abi.GDRDRV_IOC_PIN_BUFFER), []byte("0123456701234567"), va, uint64(page))
	f.Add(uint64(abi.GDRDRV_IOC_UNPIN_BUFFER), []byte{}, uint64(0), uint64(0))
	f.Add(uint64(abi.GDRDRV_IOC_GET_INFO_V2), []byte{}, uint64(0), uint64(0))
	f.Add(uint64(abi.GDRDRV_IOC_REQ_MAPPING_TYPE), []byte{}, uint64(16), uint64(1))
	f.Fuzz(func(t *testing.T, req uint64, tail []byte, a, b uint64) {
		arg := make([]uint64, 32)
		arg[0], arg[1] = a, b
		raw := unsafe.Slice((*byte)(unsafe.Pointer(&arg[0])), 256)
		copy(raw[16:], tail)
		before := bytes.Clone(raw)
		err := file.Ioctl(uintptr(req), unsafe.Pointer(&arg[0]))
		if _, ok := errors.AsType[syscall.Errno](err); err != nil && !ok {
			t.Errorf("%v is no errno", err)
		}
		n := abi.ArgSize(uintptr(req))
		if err != nil {
			n = 0
		}
		if !bytes.Equal(raw[n:], before[n:]) {
			t.Errorf("request %#x (%v) wrote beyond byte %d", req, err, n)
		}
		if m, err := file.Mmap(int64(a), int(b%(4<<20)), rw); err == nil {
			if err := m.Unmap(); err != nil {
				t.Error(err)
			}
		}
		if w.m.Pins() > 64 { // make room
			file.Release()
			file = w.m.Open(w.RM.Self)
		}
	})
}
