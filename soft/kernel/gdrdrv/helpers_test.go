package gdrdrv_test

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/gdrdrv"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/internal/machinetest"
	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	page  = 64 << 10
	block = 2 << 20
	rw    = unix.PROT_READ | unix.PROT_WRITE
)

// A fixture is a machine with the module loaded and a client.
type fixture struct {
	*machinetest.Machine
	m *gdrdrv.Module
	c *client.Client
}

func newFixture(t machinetest.T, cfg soft.Config, callback bool) *fixture {
	t.Helper()
	w := &fixture{Machine: machinetest.New(t, cfg)}
	var err error
	w.m, err = gdrdrv.New(w.OS, gdrdrv.Config{RM: w.RM, Callback: callback, Points: &w.Points})
	w.Check(err)
	w.c, err = client.Open(dev.Of(w.OS))
	w.Check(err)
	return w
}

// close wants everything back: closing the descriptor equals unpinning all.
func (w *fixture) close() {
	w.T.Helper()
	w.Check(w.c.Close())
	if n := w.m.Pins(); n != 0 {
		w.T.Errorf("%d buffers are left pinned", n)
	}
	w.m.Close()
	w.Machine.Close()
}

// load reads a byte and reports whether that faulted.
func load(b []byte, i int) (v byte, fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	return b[i], false
}
