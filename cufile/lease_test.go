package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// A holder remembers the leases that it has, and uses each when it must give it
// back: everything in it must still be good then.
type holder struct {
	t       *testing.T
	mu      sync.Mutex
	leases  []cufile.Lease
	offers  int
	revokes int
}

func (b *holder) Grant(l cufile.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offers++
	b.leases = append(b.leases, l)
}

func (b *holder) RevokeFile(f *cufile.File) {
	b.giveBack(func(l *cufile.Lease) bool { return l.File == f })
}

func (b *holder) RevokeBuffer(base gpu.Addr) {
	b.giveBack(func(l *cufile.Lease) bool { return l.Base == base })
}

func (b *holder) giveBack(match func(*cufile.Lease) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revokes++
	kept := b.leases[:0]
	for _, l := range b.leases {
		if !match(&l) {
			kept = append(kept, l)
			continue
		}
		if n, err := unix.Pread(l.FD, l.Mem[:512], 0); n != 512 || err != nil {
			b.t.Errorf("a lease was no good any more when it was revoked: %d, %v", n, err)
		}
	}
	b.leases = kept
}

// has is the number of leases.
func (b *holder) has() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.leases)
}

func newLeasing(t *testing.T) (*fixture, *holder) {
	t.Helper()
	t.Setenv("CULVERT_NVFS", "0") // or it would be asked first
	t.Cleanup(cufile.SetCheckInterval(time.Hour))
	b := &holder{t: t}
	f := newFixture(t, softConfig(), 128<<10, cufile.WithLeases(b))
	if _, ok := f.usable()[route.Bar]; !ok {
		t.Skip("needs GPU memory that can be mapped")
	}
	b.leases, b.offers, b.revokes = nil, 0, 0
	return f, b
}

func (f *fixture) read(h *cufile.File, mem gpu.Span, off int64) {
	f.t.Helper()
	if _, err := h.ReadAt(context.Background(), mem, off); err != nil {
		f.t.Fatal(err)
	}
}

// With a lease one can do what ReadAt does.
func TestLease(t *testing.T) {
	f, b := newLeasing(t)
	h, buf := f.open(os.O_RDONLY), f.buffer(1<<20)
	f.read(h, buf.Span().Slice(0, 4096), 0)
	f.read(h, buf.Span().Slice(0, 64<<10-1), 0)
	if b.offers != 2 {
		t.Fatalf("%d leases, want one for each read", b.offers)
	}
	l := b.leases[0]
	if l.File != h || l.Base != buf.Span().Base || l.Below != 64<<10 || len(l.Mem) != 1<<20 {
		t.Errorf("the lease is %+v", l)
	}
	if left := l.Until - cufile.Since(); left <= 0 || left > time.Hour {
		t.Errorf("it is good for %v", left)
	}
	if n, err := unix.Pread(l.FD, l.Mem[8192:8192+5000], 700); n != 5000 || err != nil {
		t.Fatal(n, err)
	}
	if !bytes.Equal(f.gpuBytes(buf.Span().Slice(8192, 5000)), f.data[700:5700]) {
		t.Error("what was read by the lease is not in GPU memory")
	}
}

// What a holder could not answer as ReadAt does is not lent.
func TestNoLease(t *testing.T) {
	f, b := newLeasing(t)
	buf := f.buffer(1 << 20)
	small := buf.Span().Slice(0, 4096)
	for name, read := range map[string]func(*cufile.File){
		"64 KiB":         func(h *cufile.File) { f.read(h, buf.Span().Slice(0, 64<<10), 0) },
		"past the end":   func(h *cufile.File) { f.read(h, small, int64(len(f.data))-100) },
		"not registered": func(h *cufile.File) { f.read(h, gpu.Span{Base: f.alloc(4096), Len: 4096}, 0) },
		"another route": func(h *cufile.File) {
			if err := h.Require(0, route.Ring); err != nil {
				t.Fatal(err)
			}
			f.read(h, small, 0)
		},
		"a write": func(h *cufile.File) {
			if _, err := h.WriteAt(context.Background(), small, 0); err != nil {
				t.Fatal(err)
			}
		},
		"freed": func(h *cufile.File) {
			defer cufile.SetCheckInterval(0)()
			freed := f.buffer(1 << 20)
			defer freed.Close()
			if err := f.dev.Free(freed.Span().Base); err != nil {
				t.Fatal(err)
			}
			if _, err := h.ReadAt(context.Background(), freed.Span().Slice(0, 4096), 0); !errors.Is(err, route.ErrFreed) {
				t.Fatal(err)
			}
		},
	} {
		h := f.open(os.O_RDWR)
		if read(h); b.offers != 0 {
			t.Fatalf("%s: %d leases", name, b.offers)
		}
		h.Close()
	}
	h := f.open(os.O_RDWR | unix.O_DIRECT)
	if f.read(h, small, 0); b.offers != 0 {
		t.Errorf("O_DIRECT: %d leases", b.offers)
	}
}

// A buffer of several allocations is not lent: the last read has had one of them
// looked at, and the holder's next may go to another.
func TestNoLeaseOfParts(t *testing.T) {
	t.Setenv("CULVERT_NVFS", "0")
	defer cufile.SetCheckInterval(time.Hour)()
	m := softMachine(t, softConfig())
	b := &holder{t: t}
	f := newFixtureOn(t, dev.With(&machine.Machine{Soft: true, GPU: &piecedDriver{Driver: m.GPU}}, dev.Of(m)), 1<<20, cufile.WithLeases(b))
	a, err := f.dev.Alloc(gpu.KindVirtual, 4<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	buf, err := f.drv.RegisterBuffer(a, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	f.read(f.open(os.O_RDONLY), buf.Span().Slice(0, 4096), 0)
	if b.offers != 0 {
		t.Errorf("%d leases", b.offers)
	}
}

// Whatever ends, what was lent of it is back before.
func TestLeasesAreRevoked(t *testing.T) {
	for name, end := range map[string]func(*fixture, *cufile.File, *cufile.Buffer) error{
		"file":   func(_ *fixture, h *cufile.File, _ *cufile.Buffer) error { return h.Close() },
		"buffer": func(_ *fixture, _ *cufile.File, b *cufile.Buffer) error { return b.Close() },
		"driver": func(f *fixture, _ *cufile.File, _ *cufile.Buffer) error { return f.drv.Close() },
		"route":  func(_ *fixture, h *cufile.File, _ *cufile.Buffer) error { return h.Require(0, route.Ring) },
	} {
		t.Run(name, func(t *testing.T) {
			f, b := newLeasing(t)
			h, buf := f.open(os.O_RDONLY), f.buffer(1<<20)
			f.read(h, buf.Span().Slice(0, 4096), 0)
			if b.has() != 1 {
				t.Fatalf("%d leases", b.has())
			}
			if err := end(f, h, buf); err != nil {
				t.Fatal(err)
			}
			if b.has() != 0 || b.revokes == 0 {
				t.Errorf("%d leases are left after %d revokes", b.has(), b.revokes)
			}
		})
	}
}

// Nothing is lent any more once it was revoked, however many reads are in flight.
func TestNoLeaseAfterRevoking(t *testing.T) {
	f, b := newLeasing(t)
	for i := range rounds(24) {
		h, buf := f.open(os.O_RDONLY), f.buffer(1<<20)
		var reads atomic.Int64
		var wg sync.WaitGroup
		for k := range uint64(4) {
			wg.Go(func() {
				for {
					if _, err := h.ReadAt(context.Background(), buf.Span().Slice(k*4096, 4096), 0); err != nil {
						return
					}
					reads.Add(1)
				}
			})
		}
		for reads.Load() < 20 {
			time.Sleep(10 * time.Microsecond)
		}
		var err error
		switch i % 3 {
		case 0:
			err = h.Close()
		case 1:
			err = buf.Close()
		case 2:
			err = h.Require(0, route.Ring)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := b.has(); n != 0 {
			t.Fatalf("round %d: %d leases after the recall", i, n)
		}
		h.Close()
		wg.Wait()
		if n := b.has(); n != 0 {
			t.Fatalf("round %d: %d leases at the end", i, n)
		}
		buf.Close()
	}
}
