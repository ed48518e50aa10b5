package ring

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/uring"
)

// directReads counts the preads with O_DIRECT of a file.
func directReads(odd *oddFiles, f *testFile) *atomic.Int64 {
	n := new(atomic.Int64)
	odd.set(func(c call) (int, error) {
		if c.verb == "pread" && c.fd == f.direct {
			n.Add(1)
		}
		return whole, nil
	})
	return n
}

// TestPollReads checks that a small cold read up to the size of poll mode is read by
// io_uring and polled for, wherever it begins and the file ends, and a larger one is not.
func TestPollReads(t *testing.T) {
	needUring(t)
	const size = 100<<10 + 777
	for _, tt := range []struct {
		name      string
		poll      int64
		off       int64
		n         int
		reads     int64 // that are polled for
		preads    int64 // of the others
		cached    bool
		noUring   bool
		preadsToo bool // what follows the end is asked for again
	}{
		{name: "aligned", poll: page, n: page, reads: 1},
		{name: "off every boundary", poll: 64 << 10, off: 1234, n: 50_000, reads: 1},
		{name: "larger", poll: page, n: page + 1, preads: 1},
		{name: "no poll mode", n: page, preads: 1},
		{name: "to the end", poll: 128 << 10, off: 90 << 10, n: size - 90<<10, reads: 1},
		{name: "across the end", poll: 128 << 10, off: 90 << 10, n: 64 << 10, reads: 1, preadsToo: true},
		{name: "behind the end", poll: page, off: 200 << 10, n: page, reads: 1, preadsToo: true},
		{name: "in the page cache", poll: page, n: page, cached: true},
		{name: "without io_uring", poll: page, n: page, preads: 1, noUring: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := coldFile(t, size)
			if tt.cached {
				if err := storage.Fetch(f.buffered, 0, size); err != nil {
					t.Skipf("needs a file that can be fetched: %v", err)
				}
			}
			odd := &oddFiles{}
			dev := openGPU(t)
			cfg := smallRing
			cfg.sys, cfg.Poll = odd, tt.poll
			r, b := openRing(t, dev, cfg), newBuffer(t, dev, tt.n)
			r.poll.off.Store(tt.noUring)
			preads := directReads(odd, f)
			want := f.data[min(int(tt.off), size):min(int(tt.off)+tt.n, size)]
			res, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Addr: b.addr(), Off: tt.off, Len: int64(tt.n)})
			if err != nil || res.N != int64(len(want)) || !bytes.Equal(b.bytes(t)[:res.N], want) {
				t.Fatalf("%+v, %v, or other bytes", res, err)
			}
			if got := r.poll.polls.reads.Load(); got != tt.reads {
				t.Errorf("%d reads were polled for, want %d", got, tt.reads)
			}
			if got := preads.Load(); got != tt.preads && !tt.preadsToo {
				t.Errorf("%d preads with O_DIRECT, want %d", got, tt.preads)
			}
		})
	}
}

// TestPollReadFails checks that what io_uring cannot read is read without, once and for
// all.
func TestPollReadFails(t *testing.T) {
	needUring(t)
	f := coldFile(t, page)
	odd := &oddFiles{}
	dev := openGPU(t)
	cfg := smallRing
	cfg.sys, cfg.Poll = odd, page
	r, b := openRing(t, dev, cfg), newBuffer(t, dev, page)
	r.poll.off.Store(false)
	preads := directReads(odd, f)
	s, err := r.small.acquire()
	if err != nil {
		t.Fatal(err)
	}
	if s.uring, err = uring.NewPolled(1); err != nil {
		t.Fatal(err)
	}
	other := make([]byte, page)
	if err := s.uring.Read(f.buffered, other, 0, 9); err != nil { // so that there is no room
		t.Fatal(err)
	}
	r.small.release(s)
	for range 2 {
		if res, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Addr: b.addr(), Len: page}); err != nil || res.N != page || !bytes.Equal(b.bytes(t), f.data) {
			t.Fatalf("%+v, %v, or other bytes", res, err)
		}
		f.cool(t)
	}
	if !r.poll.off.Load() || r.poll.polls.reads.Load() != 0 || preads.Load() != 2 {
		t.Errorf("io_uring is off: %v, %d reads by it, %d without", r.poll.off.Load(), r.poll.polls.reads.Load(), preads.Load())
	}
}

// TestPollEvents checks that copies of larger requests are polled for up to the size of
// poll mode, and that the driver waits only for those that take too long.
func TestPollEvents(t *testing.T) {
	const n = 1 << 20
	dev := newOddGPU(openGPU(t))
	r := openRing(t, dev, smallRing)
	f, b := newFile(t, noise(3, n)), newBuffer(t, dev.Device, n)
	var waits atomic.Int64
	dev.set(func(verb string, _ uint64) error {
		if verb == "event" {
			waits.Add(1)
		}
		return nil
	})
	defer dev.set(nil)
	for _, poll := range []int64{0, n - 1, n} {
		for _, write := range []bool{false, true} {
			r.SetPoll(poll)
			before, slept := r.Polls(), r.poll.polls.slept.Load()
			waits.Store(0)
			if _, err := run1(r, Request{Write: write, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}); err != nil {
				t.Fatal(err)
			}
			polled := r.Polls() - before
			if (polled > 0) != (poll >= n) {
				t.Errorf("polling up to %d bytes, write %v: %d completions were polled for", poll, write, polled)
			}
			if most := r.poll.polls.slept.Load() - slept; poll >= n && waits.Load() > most {
				t.Errorf("the driver waited for %d copies, and %d took too long", waits.Load(), most)
			}
		}
	}
}

// TestSpinEnds checks that polling has an end.
func TestSpinEnds(t *testing.T) {
	var p poller
	began, polls := time.Now(), 0
	if p.spin(&p.polls.reads, func() bool { polls++; return false }) {
		t.Error("what is never done is done")
	}
	if took := time.Since(began); polls == 0 || took < pollFor || p.polls.slept.Load() != 1 {
		t.Errorf("%d polls in %v", polls, took)
	}
	if !p.spin(&p.polls.reads, func() bool { return true }) || p.polls.slept.Load() != 1 {
		t.Error("what is done is not done")
	}
}

// BenchmarkPoll reads pages that are not in the page cache with O_DIRECT, asleep or
// polling for them.
func BenchmarkPoll(b *testing.B) {
	const size = 8 << 20
	for _, n := range []int64{page, 64 << 10} {
		for name, poll := range map[string]int64{"sleeps": 0, "polls": n} {
			b.Run(fmt.Sprintf("%dK/%s", n>>10, name), func(b *testing.B) {
				f := newFile(b, noise(9, size))
				f.cool(b)
				r, err := New(&nullGPU{t: b}, Config{Workers: 2, Poll: poll})
				if err != nil {
					b.Fatal(err)
				}
				defer r.Close()
				i := int64(0)
				for b.Loop() {
					i = (i*5 + 1) % (size / n)
					if res, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Addr: page, Off: i * n, Len: n}); err != nil || res.DirectBytes != n {
						b.Fatalf("%+v, %v", res, err)
					}
				}
				b.ReportMetric(float64(r.poll.polls.reads.Load()-r.poll.polls.slept.Load())/float64(b.N), "polled/op")
			})
		}
	}
}
