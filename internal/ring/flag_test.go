package ring

import (
	"bytes"
	"errors"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

// setFlags decides how small requests wait, which is otherwise measured. It wants
// a ring that nobody uses yet.
func setFlags(t *testing.T, r *Ring, flags bool) {
	t.Helper()
	s, err := r.getSmall()
	if err != nil {
		t.Fatal(err)
	}
	r.putSmall(s)
	r.flags = flags
	for _, s := range r.smalls.all {
		s.flagged = flags
	}
}

// Small requests that wait for a flag move the same bytes, and where the flag
// cannot be had or never comes the driver waits.
func TestFlags(t *testing.T) {
	broken := errors.New("broken")
	odd := newOddGPU(openGPU(t))
	r := openRing(t, odd, smallRing)
	const n = 50_000
	f, b := newFile(t, noise(1, n)), newBuffer(t, odd.Device, n)
	read := func() (Res, error) {
		return run1(r, Req{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
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
	s, err := r.getSmall()
	if err != nil {
		t.Fatal(err)
	}
	defer r.putSmall(s)
	real := s.stream
	s.stream = lostFlags{real}
	if s.seen() {
		t.Error("a flag was seen that nobody wrote")
	}
	s.stream = real
	if err := s.stream.Write(s.flagAddr, uint64(s.seq), 4); err != nil {
		t.Fatal(err)
	}
	if err := s.stream.Synchronize(); err != nil {
		t.Fatal(err)
	}
	s.stream = lostFlags{real}
	if s.seen() {
		t.Error("an old flag was taken for the new one")
	}
	s.stream = real
}

type lostFlags struct{ gpu.Stream }

func (lostFlags) Write(gpu.Addr, uint64, int) error { return nil }
