package datapath

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/lab/suite"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

func TestMain(m *testing.M) { suite.Main(m) }

// A fixture is a driver on a software machine.
type fixture struct {
	t   *testing.T
	drv *cufile.Driver
	dev gpu.Device
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, soft.Config{Memory: 128 << 20})
}

func newFixtureOn(t *testing.T, cfg soft.Config) *fixture {
	t.Helper()
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drv.Close() })
	dev, err := drv.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, drv, dev}
}

// register opens a file for cuFile.
func (w *fixture) register(name string, flags int) *cufile.File {
	w.t.Helper()
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	h, err := w.drv.Register(f)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { h.Close() })
	return h
}

// buffer is registered GPU memory.
func (w *fixture) buffer(n uint64) gpu.Span {
	w.t.Helper()
	a, err := w.dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := w.drv.RegisterBuffer(a, n)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		b.Close()
		w.dev.Free(a)
	})
	return b.Span()
}

func (w *fixture) bytes(s gpu.Span) []byte {
	w.t.Helper()
	b := make([]byte, s.Len)
	if err := w.dev.CopyOut(b, s.Addr()); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// withoutEnv names routes that a suite leaves out, with the reason in its
// table.
const withoutEnv = "CULVERT_LAB_WITHOUT"

// routes are the ones that the machine offers for a file.
func (w *fixture) routes(name string) []route.ID {
	w.t.Helper()
	h := w.register(name, os.O_RDONLY)
	var ids []route.ID
	without := strings.Split(os.Getenv(withoutEnv), ",")
	for id := route.Vendor; id <= route.Host; id++ {
		if h.Require(0, id) == nil && !slices.Contains(without, id.String()) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		w.t.Fatalf("no route for %s", name)
	}
	return ids
}

func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(b)
	return b
}

// aligned is noise in memory that direct I/O takes.
func aligned(t *testing.T, n int, seed uint64) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	copy(b, noise(n, seed))
	return b
}

func equal(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s holds other data", what)
	}
}
