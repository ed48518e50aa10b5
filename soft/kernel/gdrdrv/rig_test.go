package gdrdrv_test

import (
	"bytes"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	client "github.com/culvert-io/culvert/internal/dev/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/p2p/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	page  = 64 << 10
	block = 2 << 20
	rw    = unix.PROT_READ | unix.PROT_WRITE
)

type fataler interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}

// A world is a machine with the module loaded and a client.
type world struct {
	*rig.Rig
	t fataler
	m *gdrdrv.Module
	c *client.Client
}

func newWorld(t fataler, cfg rig.Config, callback bool) *world {
	t.Helper()
	w := &world{t: t}
	var err error
	w.Rig, err = rig.New(cfg)
	w.check(err)
	w.m, err = gdrdrv.New(w.OS, gdrdrv.Config{RM: w.RM, Callback: callback, Points: &w.Points})
	w.check(err)
	w.c, err = client.Open(w.OS)
	w.check(err)
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// close wants everything back: closing the descriptor equals unpinning all.
func (w *world) close() {
	w.t.Helper()
	w.check(w.c.Close())
	if n := w.m.Pins(); n != 0 {
		w.t.Errorf("%d buffers are left pinned", n)
	}
	w.m.Close()
	w.check(w.Rig.Close())
}

func (w *world) alloc(n uint64) uint64 {
	w.t.Helper()
	a, err := w.GPU.Alloc(gpu.KindDevice, n, 0)
	w.check(err)
	return uint64(a)
}

func (w *world) free(a uint64) {
	w.t.Helper()
	w.check(w.GPU.Free(gpu.Addr(a)))
}

func (w *world) fill(a uint64, n int, b byte) {
	w.t.Helper()
	w.check(w.GPU.CopyIn(gpu.Addr(a), bytes.Repeat([]byte{b}, n)))
}

func (w *world) read(a uint64, n int) []byte {
	w.t.Helper()
	p := make([]byte, n)
	w.check(w.GPU.CopyOut(p, gpu.Addr(a)))
	return p
}

// load reads a byte and reports whether that faulted.
func load(b []byte, i int) (v byte, fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	return b[i], false
}
