package ring

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

// setFlags decides how few small requests wait, which is otherwise measured. It
// wants a ring that nobody uses yet.
func setFlags(t *testing.T, r *Ring, flags bool) {
	t.Helper()
	s, err := r.acquireSmall()
	if err != nil {
		t.Fatal(err)
	}
	r.releaseSmall(s)
	r.flags = flags
}

// Small requests that wait for a flag move the same bytes, and where the flag
// cannot be had or never comes the driver waits.
func TestFlags(t *testing.T) {
	broken := errors.New("broken")
	odd := newOddGPU(openGPU(t))
	r := openRing(t, odd, smallRing)
	const n = 50_000
	f, b := newFile(t, noise(1, n)), newBuffer(t, odd.Device, n)
	read := func() (Result, error) {
		return run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
	}
	setFlags(t, r, true)
	var waits int
	tests := []struct {
		name  string
		odd   func(verb string, n uint64) error
		err   error
		waits bool
	}{
		{name: "works"},
		{name: "no flags", waits: true, odd: func(verb string, _ uint64) error {
			if verb == "write" {
				return gpu.ErrNotSupported
			}
			return nil
		}},
		{name: "the GPU fails", waits: true, err: broken, odd: func(verb string, _ uint64) error {
			if verb == "write" || verb == "synchronize" {
				return broken
			}
			return nil
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			waits = 0
			odd.set(func(verb string, n uint64) error {
				if verb == "synchronize" {
					waits++
				}
				if tt.odd == nil {
					return nil
				}
				return tt.odd(verb, n)
			})
			defer odd.set(nil)
			b.set(t, make([]byte, n))
			res, err := read()
			if !errors.Is(err, tt.err) || tt.err == nil && err != nil {
				t.Fatalf("%+v, %v, want %v", res, err, tt.err)
			}
			if err == nil && !bytes.Equal(b.bytes(t), f.data) {
				t.Error("wrong bytes")
			}
			if tt.waits && waits == 0 {
				t.Error("nobody waited for the copy")
			}
		})
	}
}

// A flag that never comes is given up, and is not mistaken for a later one.
func TestFlagLost(t *testing.T) {
	r := openRing(t, openGPU(t), smallRing)
	s, err := r.acquireSmall()
	if err != nil {
		t.Fatal(err)
	}
	defer r.releaseSmall(s)
	if loses(t, s) {
		t.Error("a flag was seen that nobody wrote")
	}
	if err := s.stream.Write(s.flagAddr, uint64(s.seq), 4); err != nil {
		t.Fatal(err)
	}
	if err := s.stream.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if loses(t, s) {
		t.Error("an old flag was taken for the new one")
	}
}

// loses launches a copy whose flag gets lost, and reports whether it was seen.
func loses(t *testing.T, s *smallSlot) bool {
	t.Helper()
	real := s.stream
	defer func(flagged bool, marks copyWriter) { s.stream, s.useFlag, s.copyWriter = real, flagged, marks }(s.useFlag, s.copyWriter)
	s.stream, s.useFlag, s.copyWriter = lostFlags{real}, true, nil
	marked, err := s.launch(s.addr+page, s.addr, 64)
	if err != nil || !marked {
		t.Fatalf("launch: %v, %v", marked, err)
	}
	defer real.Synchronize()
	return s.flagSeen()
}

type lostFlags struct{ gpu.Stream }

func (lostFlags) Write(gpu.Addr, uint64, int) error { return nil }

// Flags are for few callers, and for copies to the GPU.
func TestFlagCallers(t *testing.T) {
	odd := newOddGPU(openGPU(t))
	r := openRing(t, odd, smallRing)
	f, b := newFile(t, noise(1, page)), newBuffer(t, odd.Device, page)
	setFlags(t, r, true)
	for i := range flagCallers + 1 {
		s, err := r.acquireSmall()
		if err != nil {
			t.Fatal(err)
		}
		defer r.releaseSmall(s)
		if want := i < flagCallers; s.useFlag != want {
			t.Errorf("caller %d waits for a flag: %v, want %v", i, s.useFlag, want)
		}
	}
	r2 := openRing(t, odd, smallRing)
	setFlags(t, r2, true)
	var flags int
	odd.set(func(verb string, _ uint64) error {
		if verb == "write" {
			flags++
		}
		return nil
	})
	defer odd.set(nil)
	for i, write := range []bool{true, false} {
		if _, err := run1(r2, Request{Write: write, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: page}); err != nil {
			t.Fatal(err)
		}
		if flags != i {
			t.Errorf("write %v: %d flags, want %d", write, flags, i)
		}
	}
}

// A stream that takes copy and flag in one call is asked once, and where that
// fails half-way the copy is made again and waited for.
func TestCopyWrite(t *testing.T) {
	broken := errors.New("broken")
	odd := newOddGPU(openGPU(t))
	r := openRing(t, odd, smallRing)
	const n = 5000
	f, b := newFile(t, noise(1, n)), newBuffer(t, odd.Device, n)
	setFlags(t, r, true)
	s, err := r.acquireSmall()
	if err != nil {
		t.Fatal(err)
	}
	r.releaseSmall(s)
	for _, tt := range []struct {
		name       string
		copy, mark error // of the call for both
		after      error // of copies after it
		copies     int   // by themselves
		waits      bool
	}{
		{name: "works"},
		{name: "no copy", copy: broken, copies: 1, waits: true},
		{name: "a copy without a flag", mark: broken, copies: 1, waits: true},
		{name: "nothing works", copy: broken, after: broken, copies: 1, waits: true},
		{name: "no flag, then nothing works", mark: broken, after: broken, copies: 1, waits: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var copies, waits int
			odd.set(func(verb string, _ uint64) error {
				switch verb {
				case "copy":
					copies++
					return tt.after
				case "synchronize":
					waits++
				}
				return nil
			})
			defer odd.set(nil)
			marks := &fakeMarks{Stream: s.stream.(*oddStream).Stream, flag: s.flag, copy: tt.copy, mark: tt.mark}
			s.copyWriter = marks
			defer func() { s.copyWriter = nil }()
			b.set(t, make([]byte, n))
			res, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
			if !errors.Is(err, tt.after) || tt.after == nil && (err != nil || res.N != n) {
				t.Fatalf("%+v, %v, want %v", res, err, tt.after)
			}
			if err == nil && !bytes.Equal(b.bytes(t), f.data) {
				t.Error("wrong bytes")
			}
			if marks.calls != 1 || copies != tt.copies || (waits > 0) != tt.waits {
				t.Errorf("%d calls, %d copies by themselves, want %d; %d waits, want some: %v", marks.calls, copies, tt.copies, waits, tt.waits)
			}
		})
	}
}

// fakeMarks does both, and has done so when it returns.
type fakeMarks struct {
	gpu.Stream
	flag       *atomic.Uint32
	copy, mark error
	calls      int
}

func (m *fakeMarks) CopyWrite(dst, src gpu.Addr, n uint64, _ gpu.Addr, value uint32) error {
	m.calls++
	if m.copy != nil {
		return m.copy
	}
	err := errors.Join(m.Stream.Copy(dst, src, n), m.Stream.Synchronize(), m.mark)
	if err == nil {
		m.flag.Store(value)
	}
	return err
}
