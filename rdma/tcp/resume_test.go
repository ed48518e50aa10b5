package tcp

import (
	"context"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/rdma"
)

var (
	soakOps  = flag.Int("rdma.ops", 3000, "number of requests while connections break")
	soakGiB  = flag.Int("rdma.gib", 0, "go on until this much was moved, in GiB")
	soakSeed = flag.Uint64("rdma.seed", 1, "seed of the requests")
)

// A node is one end of a connection.
type node struct {
	t   testing.TB
	dev rdma.Device
	pd  rdma.PD
	cq  rdma.CQ
	qp  rdma.QP
	buf []byte
	mr  rdma.MR
}

const nodeSize = 4 << 20

func newNode(t testing.TB, d rdma.Device) *node {
	t.Helper()
	n := &node{t: t, dev: d}
	var err error
	n.pd, err = d.AllocPD()
	n.ok(err)
	n.cq, err = d.CreateCQ(1024)
	n.ok(err)
	n.qp, err = n.pd.CreateQP(rdma.QPConfig{SendCQ: n.cq, RecvCQ: n.cq})
	n.ok(err)
	n.buf, err = unix.Mmap(-1, 0, nodeSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	n.ok(err)
	n.mr, err = n.pd.Register(rdma.Host(n.buf), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead|rdma.RemoteAtomic)
	n.ok(err)
	return n
}

func (n *node) ok(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) close() {
	n.t.Helper()
	for _, c := range []interface{ Close() error }{n.qp, n.mr, n.cq, n.pd, n.dev} {
		n.ok(c.Close())
	}
	n.ok(unix.Munmap(n.buf))
}

func connect(t testing.TB, a, b *node) {
	t.Helper()
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	done := make(chan error, 1)
	go func() {
		_, err := rdma.Establish(context.Background(), y, b.dev, b.qp, rdma.Options{MinRNRTimer: 1})
		done <- err
	}()
	_, err := rdma.Establish(context.Background(), x, a.dev, a.qp, rdma.Options{MinRNRTimer: 1})
	a.ok(err)
	a.ok(<-done)
}

// Connections break at random while writes, reads, sends and atomics are in flight: nothing
// is lost, nothing is executed twice.
func TestResume(t *testing.T) {
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	da, err := p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	db, err := p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	a, b := newNode(t, da), newNode(t, db)
	connect(t, a, b)
	rng := rand.New(rand.NewPCG(*soakSeed, 7))
	s := &soak{a: a, b: b, rng: rng, model: make([]byte, nodeSize/2)}
	ops, heap := uint64(0), uint64(0)
	for ; ops < uint64(*soakOps) || s.moved < uint64(*soakGiB)<<30; ops++ {
		if rng.IntN(40) == 0 {
			p.Break()
		}
		s.step(ops)
		if ops == uint64(*soakOps)-1 {
			heap = inUse()
		}
	}
	s.settle(ops)
	t.Logf("%d requests moved %d MiB", ops, s.moved>>20)
	if now := inUse(); *soakGiB > 0 && now > heap+heapGrowth {
		t.Errorf("the heap grew from %d to %d bytes while %d GiB were moved", heap, now, *soakGiB)
	}
	if got := binary.LittleEndian.Uint64(b.buf[counterAt:]); got != s.added {
		t.Errorf("the counter is %d, %d was added: atomics were lost or repeated", got, s.added)
	}
	if s.received != s.sent {
		t.Errorf("%d messages arrived, %d were sent", s.received, s.sent)
	}
	if i := differs(b.buf[:nodeSize/2], s.model); i >= 0 {
		t.Errorf("byte %d is %#x, want %#x", i, b.buf[i], s.model[i])
	}
	a.close()
	b.close()
	a.ok(p.Close())
}

// heapGrowth is more than the heap of a soak that leaks nothing can grow.
const heapGrowth = 16 << 20

// inUse is the memory of the Go heap that is in use.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const (
	counterAt = nodeSize - 4096
	resultAt  = nodeSize - 8192
	messageAt = nodeSize - 1024
)

func differs(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// A soak runs random requests of a against b, one after another per region of memory.
type soak struct {
	a, b           *node
	rng            *rand.Rand
	model          []byte
	added          uint64
	moved          uint64 // bytes
	sent, received uint64
	inFlight       int
	next           uint64 // ID of the next completion
}

// step posts a request, with up to 16 in flight.
func (s *soak) step(id uint64) {
	wr := rdma.SendWR{ID: id, Flags: rdma.Signaled, RKey: s.b.mr.RKey()}
	switch k := s.rng.IntN(10); {
	case k < 5: // a write of the same bytes to the same place at both ends
		off := uint64(s.rng.IntN(nodeSize / 2))
		n := uint32(1 + s.rng.IntN(min(nodeSize/2-int(off), 1<<s.rng.IntN(20))))
		s.settle(id) // the source must not change while it is in flight
		for i := range s.a.buf[off : off+uint64(n)] {
			s.a.buf[off+uint64(i)] = byte(s.rng.Uint32())
		}
		copy(s.model[off:], s.a.buf[off:off+uint64(n)])
		wr.Op, wr.SGE, wr.RemoteAddr = rdma.OpWrite, []rdma.SGE{rdma.Local(s.a.mr, off, n)}, s.b.mr.Addr()+off
	case k < 7:
		add := uint64(s.rng.IntN(1000))
		s.added += add
		wr.Op, wr.CompareAdd = rdma.OpFetchAdd, add
		wr.SGE, wr.RemoteAddr = []rdma.SGE{rdma.Local(s.a.mr, resultAt, 8)}, s.b.mr.Addr()+counterAt
	case k < 8:
		wr.Op, wr.SGE, wr.RemoteAddr = rdma.OpRead, []rdma.SGE{rdma.Local(s.a.mr, nodeSize/2, uint32(1+s.rng.IntN(1<<20)))}, s.b.mr.Addr()
	default:
		s.b.ok(rdma.PostReceive(s.b.qp, rdma.RecvWR{ID: s.sent, SGE: []rdma.SGE{rdma.Local(s.b.mr, messageAt, 64)}}))
		s.sent++
		wr.Op, wr.SGE = rdma.OpSend, []rdma.SGE{rdma.Local(s.a.mr, messageAt, 64)}
	}
	s.a.ok(rdma.Post(s.a.qp, wr))
	s.moved += uint64(wr.SGE[0].Len)
	s.inFlight++
	for s.inFlight >= 16 {
		s.reap()
	}
}

// settle waits until every request before id has completed.
func (s *soak) settle(id uint64) {
	for s.next < id {
		s.reap()
	}
	for s.received < s.sent {
		s.receive(true)
	}
}

func (s *soak) reap() {
	var wcs [16]rdma.WC
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := rdma.Await(ctx, s.a.cq, wcs[:])
	s.a.ok(err)
	for _, wc := range wcs[:n] {
		if wc.ID != s.next || wc.Status != rdma.Success {
			s.a.t.Fatalf("completion %+v, expected request %d", wc, s.next)
		}
		s.next++
		s.inFlight--
	}
	s.receive(false)
}

func (s *soak) receive(wait bool) {
	var wcs [64]rdma.WC
	n, err := s.b.cq.Poll(wcs[:])
	if wait && n == 0 && err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n, err = rdma.Await(ctx, s.b.cq, wcs[:])
	}
	s.b.ok(err)
	for _, wc := range wcs[:n] {
		if wc.ID != s.received || wc.Status != rdma.Success {
			s.b.t.Fatalf("receive %+v, expected %d", wc, s.received)
		}
		s.received++
	}
}

// Listening where other hosts reach it needs a token or TLS.
func TestExposureNeedsASecret(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", "[::]:0"} {
		p, err := New(Config{Listen: listen})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := p.Open(""); err == nil {
			t.Errorf("%s was accepted without a token", listen)
			_ = d.Close()
		}
	}
	if _, err := New(Config{Listen: "nonsense"}); err == nil {
		t.Error("a listen address that is none was accepted")
	}
}

// GPU addresses and other memory that the CPU cannot access are refused with EFAULT.
func TestReservedMemoryIsRefused(t *testing.T) {
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, d)
	reserved, err := unix.Mmap(-1, 0, 8192, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	n.ok(err)
	m := rdma.Host(reserved)
	if _, err := n.pd.Register(rdma.Memory{Addr: m.Addr, Len: m.Len}, 0); rdma.Errno(err) != unix.EFAULT {
		t.Errorf("reserved memory: %v", err)
	}
	n.ok(unix.Munmap(reserved))
	n.close()
}
