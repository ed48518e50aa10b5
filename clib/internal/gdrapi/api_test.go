package gdrapi

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

// A fixture is a machine with two GPUs, and memory of each.
type fixture struct {
	*testing.T
	*API
	addr [2]gpu.Addr
	gpus [2]gpu.Device
}

func newFixture(t *testing.T, cfg soft.Config) *fixture {
	t.Helper()
	cfg.GPUs, cfg.Memory = 2, 16<<20
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{T: t, API: New(func() (*machine.Machine, error) { return m, nil })}
	for i := range w.gpus {
		w.gpus[i], err = m.GPU.Open(i)
		w.must(err)
		w.addr[i], err = w.gpus[i].Alloc(gpu.KindDevice, 4*pageSize, 0)
		w.must(err)
	}
	t.Cleanup(func() {
		s, _ := soft.Of(m.GPU)
		errs := []error{s.InUse()}
		for i, d := range w.gpus {
			errs = append(errs, d.Free(w.addr[i]), d.Close())
		}
		if err := errors.Join(append(errs, m.Close())...); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *fixture) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) open() handle.ID {
	w.Helper()
	n, err := w.Open()
	w.must(err)
	return handle.ID(n)
}

func (w *fixture) pin(g handle.ID, addr gpu.Addr, size uint64) handle.ID {
	w.Helper()
	id := new(handle.ID)
	w.must(w.Pin(g, uint64(addr), size, 0, 0, cmem.PtrTo(id)))
	return *id
}

// One session serves all GPUs, with gdrdrv and without, and closing it unpins everything.
func TestAllGPUs(t *testing.T) {
	for name, without := range map[string][]string{"gdrdrv": nil, "BAR1": {"gdrdrv"}} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, soft.Config{Without: without})
			g := w.open()
			for i, d := range w.gpus {
				id, at := w.pin(g, w.addr[i], 2*pageSize), new(cmem.Ptr)
				w.must(w.Map(g, id, cmem.PtrTo(at), 2*pageSize))
				text := []byte{'G', 'P', 'U', byte('0' + i)}
				w.must(w.CopyTo(id, *at+pageSize, cmem.PtrTo(&text[0]), 4))
				got := make([]byte, 4)
				w.must(d.CopyOut(got, w.addr[i]+pageSize))
				if !bytes.Equal(got, text) {
					t.Errorf("GPU %d has %q", i, got)
				}
			}
			w.must(w.Close(g))
		})
	}
}

// A handle belongs to its session, and ends with it.
func TestHandles(t *testing.T) {
	w := newFixture(t, soft.Config{})
	g, other := w.open(), w.open()
	id, at := w.pin(g, w.addr[0], 100), new(cmem.Ptr)
	out := cmem.PtrTo(at)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("unpin by another session", w.Unpin(other, id))
	refused("map by another session", w.Map(other, id, out, 100))
	refused("a session as a handle", w.Unpin(g, g))
	w.must(w.Map(g, id, out, pageSize)) // all of the page
	w.must(w.CopyTo(id, *at+pageSize-1, out, 1))
	refused("copy below", w.CopyTo(id, *at-1, out, 1))
	refused("copy above", w.CopyTo(id, *at+pageSize, out, 1))
	refused("copy of too much", w.CopyFrom(id, out, *at, 1<<63))
	w.must(w.Close(g))
	refused("copy after close", w.CopyTo(id, *at, out, 1))
	refused("unpin after close", w.Unpin(g, id))
	refused("second close", w.Close(g))
	w.must(w.Close(other))
}

// The flag tells that memory was freed under a pin that is not persistent.
func TestCallbackFlag(t *testing.T) {
	w := newFixture(t, soft.Config{Callback: true})
	g := w.open()
	id, v := w.pin(g, w.addr[0], pageSize), new(int32)
	w.must(w.Attribute(g, attrPersistent, cmem.PtrTo(v)))
	if *v != 0 {
		t.Error("pins are persistent")
	}
	w.must(w.gpus[0].Free(w.addr[0]))
	w.must(w.CallbackFlag(g, id, cmem.PtrTo(v)))
	if *v != 1 {
		t.Error("the flag is not set after the free")
	}
	w.must(w.Unpin(g, id))
	w.must(w.Close(g))
	var err error
	w.addr[0], err = w.gpus[0].Alloc(gpu.KindDevice, pageSize, 0)
	w.must(err)
}
