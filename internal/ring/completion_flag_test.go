package ring

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/tune"
)

// newFlagRing opens a ring on a GPU with completion flags.
func newFlagRing(t *testing.T) (*oddGPU, *Ring) {
	t.Helper()
	odd := newOddGPU(openGPU(t))
	odd.flags = true
	return odd, openRing(t, odd, smallRing)
}

// TestCopyWrite checks that a copy and its flag are one call, that the copy is repeated
// and waited for if that fails half-way, and that the driver waits if no flag comes.
func TestCopyWrite(t *testing.T) {
	broken := errors.New("broken")
	const n = 5000
	for _, tt := range []struct {
		name       string
		copy, flag error // of the call for both
		after      error // of a copy after it
		copies     int   // without a flag
		waits      bool
		off        bool // no more flags afterwards
	}{
		{name: "works"},
		{name: "the flag is lost", flag: errLost, waits: true},
		{name: "no copy", copy: broken, copies: 1, waits: true, off: true},
		{name: "a copy without a flag", flag: broken, copies: 1, waits: true, off: true},
		{name: "nothing works", copy: broken, after: broken, copies: 1, waits: true},
		{name: "no flag, then nothing works", flag: broken, after: broken, copies: 1, waits: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			odd, r := newFlagRing(t)
			f, b := newFile(t, noise(1, n)), newBuffer(t, odd.Device, n)
			count := map[string]int{}
			odd.set(func(verb string, _ uint64) error {
				count[verb]++
				return map[string]error{"copywrite": tt.copy, "write": tt.flag, "copy": tt.after}[verb]
			})
			b.set(t, make([]byte, n))
			res, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
			odd.set(nil)
			if !errors.Is(err, tt.after) || tt.after == nil && (err != nil || res.N != n) {
				t.Fatalf("%+v, %v, want %v", res, err, tt.after)
			}
			if err == nil && !bytes.Equal(b.bytes(t), f.data) {
				t.Error("wrong bytes")
			}
			if count["copywrite"] != 1 || count["copy"] != tt.copies || (count["synchronize"] > 0) != tt.waits {
				t.Errorf("calls: %v, want %d copies; waits: %v", count, tt.copies, tt.waits)
			}
			if got := r.small.flags.off.Load(); got != tt.off {
				t.Errorf("flags are off: %v, want %v", got, tt.off)
			}
		})
	}
}

// TestFlagWaitFails checks that an error of the driver's wait is reported.
func TestFlagWaitFails(t *testing.T) {
	broken := errors.New("broken")
	odd, r := newFlagRing(t)
	f, b := newFile(t, noise(1, page)), newBuffer(t, odd.Device, page)
	odd.set(func(verb string, _ uint64) error {
		return map[string]error{"write": errLost, "synchronize": broken}[verb]
	})
	defer odd.set(nil)
	if res, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: page}); !errors.Is(err, broken) || res.N != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestFlagLost checks that a flag that never comes is given up, and that an old flag is
// not mistaken for the new one.
func TestFlagLost(t *testing.T) {
	odd, r := newFlagRing(t)
	s, err := r.small.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer r.small.release(s)
	odd.set(func(verb string, _ uint64) error { return map[string]error{"write": errLost}[verb] })
	defer odd.set(nil)
	for range 2 {
		s.flag.seq++
		if err := s.flag.stream.CopyWrite(s.addr+page, s.addr, 64, s.flag.addr, s.flag.seq); err != nil {
			t.Fatal(err)
		}
		if s.flag.seen() {
			t.Errorf("flag %d was seen, which nobody wrote", s.flag.seq)
		}
		s.flag.word.Store(s.flag.seq) // it comes late
	}
}

// TestFlagCallers checks that flags are for few callers, and for copies to the GPU.
func TestFlagCallers(t *testing.T) {
	odd, r := newFlagRing(t)
	f, b := newFile(t, noise(1, page)), newBuffer(t, odd.Device, page)
	var flags int
	odd.set(func(verb string, _ uint64) error {
		if verb == "copywrite" {
			flags++
		}
		return nil
	})
	defer odd.set(nil)
	transfer := func(write bool, want int) {
		t.Helper()
		if _, err := run1(r, Request{Write: write, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: page}); err != nil {
			t.Fatal(err)
		}
		if flags != want {
			t.Errorf("write %v: %d flags, want %d", write, flags, want)
		}
	}
	transfer(true, 0)
	transfer(false, 1)
	for range flagCallers {
		s, err := r.small.acquire()
		if err != nil {
			t.Fatal(err)
		}
		defer r.small.release(s)
	}
	transfer(false, 1)
}

// TestPoll checks that poll mode uses flags up to its size, for any number of callers.
func TestPoll(t *testing.T) {
	odd, r := newFlagRing(t)
	f, b := newFile(t, noise(1, 2*page)), newBuffer(t, odd.Device, 2*page)
	var flags int
	odd.set(func(verb string, _ uint64) error {
		if verb == "copywrite" {
			flags++
		}
		return nil
	})
	defer odd.set(nil)
	for range flagCallers {
		s, err := r.small.acquire()
		if err != nil {
			t.Fatal(err)
		}
		defer r.small.release(s)
	}
	for _, c := range []struct{ poll, n, want int64 }{{page, page, 1}, {page, page + 1, 0}, {page + 1, page + 1, 1}, {0, page, 0}} {
		flags = 0
		r.SetPoll(c.poll)
		if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: c.n}); err != nil {
			t.Fatal(err)
		}
		if int64(flags) != c.want {
			t.Errorf("polling up to %d bytes, a read of %d: %d flags, want %d", c.poll, c.n, flags, c.want)
		}
	}
}

// TestFlagChoice checks that the driver waits where that is known to be faster.
func TestFlagChoice(t *testing.T) {
	odd, r := newFlagRing(t)
	f, b := newFile(t, noise(1, page)), newBuffer(t, odd.Device, page)
	r.small.flags.choice.Add(tune.Default, page, time.Second)
	r.small.flags.choice.Add(tune.Alternative, page, time.Microsecond)
	odd.set(func(verb string, _ uint64) error {
		if verb == "copywrite" {
			t.Error("a flag was used")
		}
		return nil
	})
	defer odd.set(nil)
	for range 2 * flagSample {
		if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: page}); err != nil {
			t.Fatal(err)
		}
	}
}
