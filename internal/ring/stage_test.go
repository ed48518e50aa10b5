package ring

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// stage is Stage and Wait.
func stage(t *testing.T, r *Ring, f *testFile, off int64, a gpu.Addr, n int64) (full bool, res Result) {
	t.Helper()
	s, err := r.Stage(f.buffered, off, a, n)
	if err != nil {
		t.Fatal(err)
	}
	full = s.Full()
	return full, s.Wait()
}

// TestStage checks what arrives: all, or what there is of the file.
func TestStage(t *testing.T) {
	const size = StageMax + 3*page
	dev := openGPU(t)
	r := openRing(t, dev, Config{})
	f, b := newFile(t, noise(1, size)), newBuffer(t, dev, StageMax)
	for _, off := range []int64{0, 1, page - 1, size - 1, size, size + 1} {
		for _, n := range []int64{1, 511, page, 3 * page, StageMax - 1, StageMax} {
			b.set(t, make([]byte, StageMax))
			want := f.data[min(off, size):min(off+n, size)]
			full, res := stage(t, r, f, off, b.addr(), n)
			if full != (int64(len(want)) == n) || res.N != int64(len(want)) || res.HostBytes != res.N || res.Err != nil {
				t.Errorf("%d bytes at %d: full %v, %+v; want %d bytes", n, off, full, res, len(want))
			}
			if got := b.bytes(t); !bytes.Equal(got[:len(want)], want) || !bytes.Equal(got[len(want):], make([]byte, StageMax-len(want))) {
				t.Errorf("%d bytes at %d: wrong bytes", n, off)
			}
		}
	}
	if n := r.copies.Load(); n != 0 {
		t.Errorf("%d bytes of copies are counted afterwards", n)
	}
	if _, err := r.Stage(-1, 0, b.addr(), 1); !errors.Is(err, unix.EBADF) {
		t.Errorf("no descriptor: %v", err)
	}
}

// TestStageFaults checks that a read that fails keeps the bytes before, that a copy that
// fails has moved nothing, and that the slot is free again.
func TestStageFaults(t *testing.T) {
	const n = 64 << 10
	dev, sys := newOddGPU(openGPU(t)), new(oddFiles)
	r := openRing(t, dev, Config{sys: sys})
	f, b := newFile(t, noise(2, n)), newBuffer(t, dev, n)
	sys.set(func(c call) (int, error) {
		if c.off > 0 {
			return 0, unix.EIO
		}
		return page, nil
	})
	full, res := stage(t, r, f, 0, b.addr(), n)
	var e *Error
	if full || res.N != page || !errors.As(res.Err, &e) || e.Off != page || !errors.Is(e, unix.EIO) || !bytes.Equal(b.bytes(t)[:page], f.data[:page]) {
		t.Errorf("failed read: full %v, %+v", full, res)
	}
	sys.set(nil)
	for _, verb := range []string{"copy", "synchronize"} {
		var failed atomic.Bool
		dev.set(func(v string, _ uint64) error {
			if v == verb && !failed.Swap(true) {
				return gpu.Fail(verb, gpu.ErrIllegalAddress, "")
			}
			return nil
		})
		full, res := stage(t, r, f, 0, b.addr(), n)
		if full != (verb != "copy") || res.N != 0 || res.HostBytes != 0 || !errors.Is(res.Err, gpu.ErrIllegalAddress) {
			t.Errorf("failed %s: full %v, %+v", verb, full, res)
		}
		dev.set(nil)
	}
	if len(r.staged.idle) != len(r.staged.all) || r.copies.Load() != 0 {
		t.Errorf("%d of %d slots are idle, %d bytes counted", len(r.staged.idle), len(r.staged.all), r.copies.Load())
	}
	if full, res := stage(t, r, f, 0, b.addr(), n); !full || res.N != n || res.Err != nil || !bytes.Equal(b.bytes(t), f.data) {
		t.Errorf("afterwards: %v, %+v", full, res)
	}
}

// TestStageNeedsMemory checks that Stage does nothing where its slots are over the budget,
// and on a closed ring.
func TestStageNeedsMemory(t *testing.T) {
	dev := openGPU(t)
	r := openRing(t, dev, Config{Budget: 16 << 20})
	f, b := newFile(t, noise(3, page)), newBuffer(t, dev, page)
	if _, err := r.Stage(f.buffered, 0, b.addr(), page); !errors.Is(err, errNoSmallSlots) {
		t.Errorf("small budget: %v", err)
	}
	closed, err := New(dev, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := closed.Stage(f.buffered, 0, b.addr(), page); !errors.Is(err, ErrClosed) {
		t.Errorf("closed ring: %v", err)
	}
}

// TestStageTogether has more callers than slots: some wait, and each gets its bytes.
func TestStageTogether(t *testing.T) {
	const callers, n = 2 * maxStageSlots, 64 << 10
	dev := openGPU(t)
	r := openRing(t, dev, Config{})
	f, b := newFile(t, noise(4, callers*n)), newBuffer(t, dev, callers*n)
	var wg sync.WaitGroup
	for i := range int64(callers) {
		wg.Go(func() {
			for range 4 {
				s, err := r.Stage(f.buffered, i*n, b.addr()+gpu.Addr(i*n), n)
				if err != nil {
					t.Error(err)
					return
				}
				if res := s.Wait(); res.N != n || res.Err != nil {
					t.Errorf("%+v", res)
				}
			}
		})
	}
	wg.Wait()
	if !bytes.Equal(b.bytes(t), f.data) {
		t.Error("wrong bytes")
	}
	if n := len(r.staged.all); n == 0 || n > maxStageSlots {
		t.Errorf("%d slots, want at most %d", n, maxStageSlots)
	}
}

// TestNearSlot checks that a processor gets the slot that it has used last.
func TestNearSlot(t *testing.T) {
	m := smallSlots{staging: true}
	for cpu := range uint32(4) {
		m.idle = append(m.idle, &smallSlot{cpu: cpu + 1})
	}
	if at := m.near(3); at != 2 {
		t.Errorf("slot %d, want that of processor 3", at)
	}
	if at := m.near(9); at != 0 || m.idle[0].cpu != 9 {
		t.Errorf("another processor: slot %d of processor %d, want the one that was idle the longest", at, m.idle[0].cpu)
	}
}
