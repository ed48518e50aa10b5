package nvme_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/soft"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
)

// soon is a timeout for tests that wait for it several times and in which any
// command may be late: on a busy machine even one that is not held up may be.
// Tests in which it must not use patience.
const (
	soon     = 500 * time.Millisecond
	patience = 3 * time.Second
)

// A fixture is a driver on a software drive whose faults the test controls.
type fixture struct {
	testing.TB
	ctx   context.Context
	m     *soft.Machine
	drive *softnvme.Controller
	c     *nvme.Controller
	ns    *nvme.Namespace
	q     *nvme.Queue
	buf   *nvme.Buffer
}

func newFixture(t testing.TB, cfg nvme.Config, wrap func(nvme.Transport) nvme.Transport) *fixture {
	t.Helper()
	return newFixtureOn(t, softnvme.Config{}, cfg, wrap)
}

func newFixtureOn(t testing.TB, drive softnvme.Config, cfg nvme.Config, wrap func(nvme.Transport) nvme.Transport) *fixture {
	t.Helper()
	r := &fixture{TB: t, ctx: context.Background()}
	drive.Namespaces = []softnvme.Namespace{{Medium: fileDisk(t, 1<<20)}}
	r.m = newMachine(t, soft.Config{}, soft.Drive{Config: drive})
	r.drive = r.m.Drives()[0]
	var tr nvme.Transport = r.m.Transport(0)
	if wrap != nil {
		tr = wrap(tr)
	}
	var err error
	r.c, err = nvme.Open(tr, cfg)
	r.check(err)
	t.Cleanup(func() {
		r.drive.Tamper(nil)
		if err := r.c.Close(); err != nil && r.c.Err() == nil {
			t.Error(err)
		}
	})
	r.ns = r.c.Namespaces()[0]
	r.q, err = r.c.NewQueue(16)
	r.check(err)
	r.buf, err = r.c.AllocHost(1 << 20)
	r.check(err)
	return r
}

func (r *fixture) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// reads are n requests for one page each.
func (r *fixture) reads(n int) []*nvme.Request {
	var list []*nvme.Request
	for i := range n {
		list = append(list, &nvme.Request{Op: nvme.OpRead, NS: r.ns, LBA: uint64(8 * i), Blocks: 8, Buf: r.buf, Off: uint64(i) * 4096})
	}
	return list
}

func (r *fixture) submit(list []*nvme.Request) {
	r.Helper()
	if n, err := r.q.Submit(list...); n != len(list) {
		r.Fatalf("%d of %d commands were submitted: %v", n, len(list), err)
	}
}

// works writes to the whole drive and reads it back.
func (r *fixture) works() {
	r.Helper()
	b := r.buf.Bytes()
	for i := range b {
		b[i] = byte(i*11>>3) ^ byte(r.c.Resets())
	}
	want := bytes.Clone(b)
	r.check(r.ns.Write(r.ctx, r.buf, 0, 0, 2048))
	clear(b)
	r.check(r.ns.Read(r.ctx, r.buf, 0, 0, 2048))
	if !bytes.Equal(b, want) {
		r.Fatal("read other bytes than were written")
	}
}

// parked waits until the drive holds n commands up.
func (r *fixture) parked(n int) {
	r.Helper()
	for start := time.Now(); r.drive.Parked() != n; time.Sleep(100 * time.Microsecond) {
		if time.Since(start) > 2*time.Minute {
			r.Fatalf("the drive holds %d commands up, want %d", r.drive.Parked(), n)
		}
	}
}

// lose has the drive lose the completions of the next n I/O commands.
func (r *fixture) lose(n int) {
	var mu sync.Mutex
	r.drive.Tamper(func(e softnvme.Completion) []softnvme.Completion {
		mu.Lock()
		defer mu.Unlock()
		if e.SQID == 0 || n == 0 {
			return []softnvme.Completion{e}
		}
		n--
		return nil
	})
}
