// Package rdmatest is one test suite for every provider of verbs: the same requests must
// give the same bytes and the same completion codes.
package rdmatest

import (
	"cmp"
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/rdma"
)

// A Backend is what to test.
type Backend struct {
	// Open opens two devices, which may be the same one. They are closed by the suite.
	Open func(t *testing.T) (a, b rdma.Device)
	// Retry is the code of the timeout of tests in which a peer does not answer; 0 means
	// 10, 4.2 ms.
	Retry uint8
	// Arena has the buffers; nil means memory of this process. A [Far] needs one.
	Arena *Arena
	// Quirks is where the device is known to differ.
	Quirks Quirks
}

// Quirks are known differences of a device from the specification and from the others.
type Quirks struct {
	// LocalErrorFlushes means that a request with a wrong local key completes as
	// flushed, as do requests before it that the peer has not acknowledged.
	LocalErrorFlushes bool
	// ReceiveTooSmall has the completion codes of the sender and of the receiver if a
	// message does not fit; zero means those of the specification.
	ReceiveTooSmall [2]rdma.Status
}

// patience bounds waits that end at once unless something is broken.
const patience = 20 * time.Second

// An End is one end of a connected pair.
type End struct {
	t   *testing.T
	Dev rdma.Device
	PD  rdma.PD
	CQ  rdma.CQ // of both queues
	QP  rdma.QP
	Buf []byte
	MR  rdma.MR
}

// A Pair is two connected queue pairs, each with a registered buffer.
type Pair struct{ A, B *End }

// size is the size of the buffers.
const size = 1 << 20

// all is every right.
const all = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic

// setup changes a pair before it is connected.
type setup struct {
	options  rdma.Options
	access   rdma.Access // of the buffers; 0 means all
	caps     rdma.QPCaps
	receives int // posted at both ends before they are connected, 64 bytes each
}

// Connect makes a pair. Everything is closed when the test ends, in an order that a
// provider must accept.
func (b Backend) Connect(t *testing.T, s setup) *Pair {
	t.Helper()
	da, db := b.Open(t)
	p := &Pair{b.end(t, da, s), b.end(t, db, s)}
	t.Cleanup(func() {
		p.A.close()
		p.B.close()
		closing(t, da)
		if db != da {
			closing(t, db)
		}
	})
	p.establish(t, s)
	return p
}

func (b Backend) end(t *testing.T, d rdma.Device, s setup) *End {
	t.Helper()
	var err error
	e := &End{t: t, Dev: d}
	e.PD, err = d.AllocPD()
	e.ok(err)
	e.CQ, err = d.CreateCQ(512)
	e.ok(err)
	e.QP, err = e.PD.CreateQP(rdma.QPConfig{SendCQ: e.CQ, RecvCQ: e.CQ, Caps: s.caps})
	e.ok(err)
	if b.Arena != nil {
		e.Buf = b.Arena.alloc(t)
	} else {
		e.Buf = alloc(t, size)
	}
	e.MR, err = e.PD.Register(rdma.Host(e.Buf), cmp.Or(s.access, all))
	e.ok(err)
	return e
}

// establish connects both ends over a pipe.
func (p *Pair) establish(t *testing.T, s setup) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	for _, e := range []*End{p.A, p.B} {
		e.ok(rdma.Prepare(e.QP, s.options))
		for i := range s.receives {
			e.recv(uint64(1000+i), uint64(i*64), 64)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := rdma.Establish(ctx, y, p.B.Dev, p.B.QP, s.options)
		done <- err
	}()
	_, err := rdma.Establish(ctx, x, p.A.Dev, p.A.QP, s.options)
	p.A.ok(err)
	p.A.ok(<-done)
}

// alloc maps memory. Go's heap would do for most providers, but peers write into it, which
// the race detector cannot know to be ordered by completions.
func alloc(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// refused checks that a call failed; done says what it did otherwise.
func refused(t *testing.T, err error, done string) {
	t.Helper()
	if err == nil {
		t.Error(done)
	}
}

func closing(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("close %T: %v", c, err)
	}
}

func (e *End) close() {
	for _, c := range []interface{ Close() error }{e.QP, e.MR, e.CQ, e.PD} {
		if c != nil {
			closing(e.t, c)
		}
	}
}

func (e *End) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// at is n bytes of the buffer as a local range.
func (e *End) at(off uint64, n uint32) rdma.SGE { return rdma.Local(e.MR, off, n) }

// recv posts a receive into the buffer.
func (e *End) recv(id, off uint64, n uint32) {
	e.t.Helper()
	e.ok(rdma.PostReceive(e.QP, rdma.RecvWR{ID: id, SGE: []rdma.SGE{e.at(off, n)}}))
}

// post posts a signaled request. Its remote address counts from the peer's buffer.
func (e *End) post(peer *End, wr rdma.SendWR) {
	e.t.Helper()
	wr.Flags |= rdma.Signaled
	wr.RemoteAddr += peer.MR.Addr()
	wr.RKey = cmp.Or(wr.RKey, peer.MR.RKey())
	e.ok(rdma.Post(e.QP, wr))
}

// want waits for the next completion and checks it.
func (e *End) want(id uint64, s rdma.Status) rdma.WC {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	var wcs [1]rdma.WC
	_, err := rdma.Await(ctx, e.CQ, wcs[:])
	e.ok(err)
	wc := wcs[0]
	if wc.ID != id || wc.Status != s || wc.QPNum != e.QP.Num() {
		e.t.Fatalf("completion of request %d is %v (%+v); expected request %d with %v", wc.ID, wc.Status, wc, id, s)
	}
	return wc
}

// empty checks that no completion is there.
func (e *End) empty() {
	e.t.Helper()
	var wcs [1]rdma.WC
	if n, err := e.CQ.Poll(wcs[:]); n != 0 || err != nil {
		e.t.Fatalf("unexpected completion %+v, error %v", wcs[0], err)
	}
}

// fill writes a pattern that depends on the seed.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)*31 ^ seed
	}
}

func (e *End) equal(got, want []byte, what string) {
	e.t.Helper()
	for i := range want {
		if got[i] != want[i] {
			e.t.Fatalf("%s: byte %d is %#x, want %#x", what, i, got[i], want[i])
		}
	}
}

// address is where the CPU has the buffer's byte at off.
func (e *End) address(off uint64) gpu.Addr { return gpu.HostAddr(e.Buf) + gpu.Addr(off) }
