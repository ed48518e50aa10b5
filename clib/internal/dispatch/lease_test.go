package dispatch

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/lease"
)

// A tenant is a program with a file, a registered buffer and slots for leases.
type tenant struct {
	*program
	slots *lease.Slots
	file  handle.ID
	dev   uint64
}

func newTenant(t *testing.T) *tenant {
	t.Helper()
	t.Setenv("CULVERT_NVFS", "0")                   // or it would be asked first
	t.Setenv("CULVERT_SOFT", "memory=64M,poison=1") // on the heap there is nothing for C to reach
	p := &tenant{program: start(t), slots: new(lease.Slots)}
	p.core.File.PublishLeases(p.slots)
	p.must("cudaFree", 0)
	p.file = p.program.file(bytes.Repeat([]byte("x"), 8192))
	dev := new(uint64)
	p.must("cuMemAlloc_v2", out(dev), 1<<20)
	p.dev = *dev
	p.must("cuFileBufRegister", p.dev, 1<<20, 0)
	t.Cleanup(func() { p.call("cuFileDriverClose_v2") }) // files have counters, of which there are few
	return p
}

// leased are the leases after a read.
func (p *tenant) leased() (n int) {
	p.t.Helper()
	if v, errno := p.call("cuFileRead", uint64(p.file), p.dev, 4096, 0, 0); v != 4096 {
		p.t.Fatalf("read %d, errno %d", v, errno)
	}
	return p.count()
}

func (p *tenant) count() (n int) {
	for i := range p.slots {
		switch h := p.slots[i].Handle.Load(); {
		case h == uint64(p.file) && p.slots[i].Base.Load() == p.dev:
			n++
		case h != 0:
			p.t.Errorf("there is a lease for handle %#x", h)
		}
	}
	return n
}

// A read that C could have done grants a lease, and each call that ends a part of
// it revokes it.
func TestLeases(t *testing.T) {
	for name, end := range map[string]func(*tenant){
		"cuFileHandleDeregister": func(p *tenant) { p.call("cuFileHandleDeregister", uint64(p.file)) },
		"cuFileBufDeregister":    func(p *tenant) { p.must("cuFileBufDeregister", p.dev) },
		"cuFileDriverClose_v2":   func(p *tenant) { p.must("cuFileDriverClose_v2") },
		"cuFileStatsStart": func(p *tenant) {
			p.must("cuFileSetStatsLevel", 1)
			p.must("cuFileStatsStart")
		},
	} {
		p := newTenant(t)
		if n := p.leased(); n != 1 {
			t.Fatalf("%d leases after a read", n)
		}
		if n := p.leased(); n != 1 {
			t.Errorf("%d leases after another", n)
		}
		if end(p); p.count() != 0 {
			t.Errorf("the lease is there after %s", name)
		}
	}
}

// While statistics are on, every read enters Go.
func TestNoLeasesWithStatistics(t *testing.T) {
	p := newTenant(t)
	p.must("cuFileSetStatsLevel", 1)
	for _, stop := range []func(){
		func() { p.must("cuFileStatsStop") },
		func() { p.must("cuFileSetStatsLevel", 0) },
	} {
		p.must("cuFileStatsStart")
		if n := p.leased(); n != 0 {
			t.Errorf("%d leases while statistics are kept", n)
		}
		if stop(); p.leased() != 1 {
			t.Error("no lease after that")
		}
	}
}

// Reads that are logged enter Go.
func TestLogFileStopsLeases(t *testing.T) {
	t.Setenv("CUFILE_LOGFILE_PATH", filepath.Join(t.TempDir(), "log"))
	t.Setenv("CUFILE_LOGGING_LEVEL", "DEBUG")
	if n := newTenant(t).leased(); n != 0 {
		t.Errorf("%d leases", n)
	}
}
