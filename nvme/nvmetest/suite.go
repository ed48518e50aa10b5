// Package nvmetest is the test suite of the NVMe driver for all transports: the
// software controller, the emulated libnvm module, and vfio of a real kernel. The
// same commands must give the same data and status codes on all of them.
//
// It writes to the drive.
package nvmetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/culvert-io/culvert/nvme"
)

// A Drive is the drive under test.
type Drive struct {
	// Open opens the drive. Tests may call it again after they closed it.
	Open func(t testing.TB) nvme.Transport
	// BadRead is a block whose reads fail, or 0.
	BadRead uint64
	// NoDataError is true if the drive does not notice DMA to unmapped addresses
	// and reports success. Memory must not change then, either.
	NoDataError bool

	noAudit bool // for tests that violate the rules of the audit
}

// area is the size of the used part at the start of the drive, in bytes.
const area = 4 << 20

// Run runs the suite.
func Run(t *testing.T, d Drive) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Drive)
	}{
		{"Identity", testIdentity},
		{"Content", testContent},
		{"Polled", testPolled},
		{"Large", testLarge},
		{"Offsets", testOffsets},
		{"Depths", testDepths},
		{"Concurrent", testConcurrent},
		{"Statuses", testStatuses},
		{"Zeroes", testZeroes},
		{"Walk", testWalk},
		{"MediumError", testMediumError},
		{"Nowhere", testNowhere},
		{"Reset", testReset},
		{"ResetInFlight", testResetInFlight},
		{"Queues", testQueues},
		{"CloseInFlight", testCloseInFlight},
		{"Reopen", testReopen},
		{"Refused", testRefused},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, d) })
	}
}

// A fixture is an open drive with a buffer.
type fixture struct {
	testing.TB
	ctx context.Context
	c   *nvme.Controller
	ns  *nvme.Namespace
	buf *nvme.Buffer
	rnd *rand.Rand
}

func open(t testing.TB, d Drive, cfg nvme.Config) *fixture {
	t.Helper()
	tr := d.Open(t)
	var watch *audit
	if !d.noAudit {
		watch = newAudit(t, tr)
		tr = watch
	}
	c, err := nvme.Open(tr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &fixture{TB: t, ctx: context.Background(), c: c, rnd: rand.New(rand.NewPCG(1, 2))}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && c.Err() == nil {
			t.Error(err)
		}
	})
	if len(c.Namespaces()) == 0 {
		t.Fatal("drive has no namespace")
	}
	r.ns = c.Namespaces()[0]
	if watch != nil {
		watch.block = r.ns.BlockSize()
	}
	if n := r.ns.Blocks() * uint64(r.ns.BlockSize()); n < area {
		t.Fatalf("drive of %d bytes: the suite needs %d", n, area)
	}
	r.buf = r.host(area)
	return r
}

func (r *fixture) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// is checks the error of a call that must fail.
func (r *fixture) is(err, want error, what string) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (r *fixture) host(n int) *nvme.Buffer {
	r.Helper()
	b, err := r.c.AllocHost(n)
	r.check(err)
	return b
}

func (r *fixture) blocks(n int) uint64 { return uint64(n / r.ns.BlockSize()) }

// fill fills b with pseudo-random bytes of a seed.
func fill(b []byte, seed uint64) {
	c := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), 1})
	_, _ = c.Read(b) // never fails
}

// write writes pseudo-random bytes to blocks of the drive.
func (r *fixture) write(lba, n, seed uint64) {
	r.Helper()
	size := int(n) * r.ns.BlockSize()
	fill(r.buf.Bytes()[:size], seed)
	r.check(r.ns.Write(r.ctx, r.buf, 0, lba, n))
}

// expect reads blocks and compares them with want.
func (r *fixture) expect(lba, n uint64, want []byte) {
	r.Helper()
	size := int(n) * r.ns.BlockSize()
	b := r.buf.Bytes()[:size]
	copy(b, bytes.Repeat([]byte{0xcc}, size))
	r.check(r.ns.Read(r.ctx, r.buf, 0, lba, n))
	if !bytes.Equal(b, want[:size]) {
		r.Fatalf("blocks %d to %d do not have the written data", lba, lba+n-1)
	}
}
