package ring

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// A machine that has no memory left to pin for small requests serves them with
// what there is, as often as they come.
func TestNoSmallSlots(t *testing.T) {
	for _, verb := range []string{"alloc host", "stream"} {
		t.Run(verb, func(t *testing.T) {
			dev := newOddGPU(openGPU(t))
			r := openRing(t, dev, smallRing)
			dev.set(func(v string, _ uint64) error {
				if v == verb {
					return gpu.Fail(v, gpu.ErrOutOfMemory, "")
				}
				return nil
			})
			const n = 50_000
			f, b := newFile(t, noise(1, n)), newBuffer(t, dev.Device, n)
			q := Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}
			for i := range 3 {
				b.set(t, make([]byte, n))
				done := make(chan Result, 1)
				go func() {
					res, _ := run1(r, q)
					done <- res
				}()
				select {
				case res := <-done:
					if res.Err != nil || res.N != n || !bytes.Equal(b.bytes(t), f.data) {
						t.Fatalf("request %d: %+v", i, res)
					}
				case <-time.After(time.Minute):
					t.Fatalf("request %d waits for a slot that never comes", i)
				}
			}
			if r.Pinned() > smallRing.Budget {
				t.Errorf("%d bytes pinned of at most %d", r.Pinned(), smallRing.Budget)
			}
		})
	}
}

// Pinned memory that was used before may contain what looks like a flag.
func TestFlagInUsedMemory(t *testing.T) {
	dev := &usedGPU{openGPU(t)}
	r := openRing(t, dev, smallRing)
	s, err := r.small.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer r.small.release(s)
	for _, s := range r.small.all {
		s.flag.seq++
		if s.flag.seen() {
			t.Fatalf("flag %d was seen, which nobody wrote", s.flag.seq)
		}
	}
}

// usedGPU gives out pinned memory in which every word is the first flag.
type usedGPU struct{ gpu.Device }

func (u *usedGPU) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	a, err := u.Device.Alloc(k, n, f)
	if err == nil && k == gpu.KindHost {
		for mem := gpu.HostBytes(a, n); len(mem) >= 4; mem = mem[4:] {
			binary.LittleEndian.PutUint32(mem, 1)
		}
	}
	return a, err
}

// TestDegradationIsLogged checks that a ring that cannot pin more memory says so.
func TestDegradationIsLogged(t *testing.T) {
	dev := newOddGPU(openGPU(t))
	var log syncBuffer
	cfg := smallRing
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r, err := New(dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	dev.set(func(v string, _ uint64) error {
		if v == "alloc host" {
			return gpu.Fail(v, gpu.ErrOutOfMemory, "")
		}
		return nil
	})
	f, b := newFile(t, noise(1, 4<<20)), newBuffer(t, dev.Device, 4<<20)
	const fewer = "cannot create a pipeline; continuing with fewer"
	for n, i := int64(1000), 0; i < 500 && !strings.Contains(log.String(), fewer); n, i = 4<<20, i+1 { // until a worker was in time
		if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}); err != nil {
			t.Error(err)
		}
	}
	if err := r.Close(); err != nil { // no worker logs any more
		t.Error(err)
	}
	for _, want := range []string{"cannot pin slots for small requests; continuing with fewer", fewer} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}

// A syncBuffer is written by several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
