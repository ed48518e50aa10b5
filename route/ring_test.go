package route

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

// pinless is a GPU on a machine that has no memory to pin.
type pinless struct {
	gpu.Device
	tries int
}

func (p *pinless) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	if k == gpu.KindHost {
		p.tries++
		return 0, gpu.ErrOutOfMemory
	}
	return p.Device.Alloc(k, n, f)
}

func (p *pinless) Register(uintptr, uint64, gpu.Flags) error { return gpu.ErrOutOfMemory }

// adopt makes a file of the given bytes.
func adopt(t *testing.T, name string, data []byte) *storage.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := storage.Adopt(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func softDevice(t *testing.T) (gpu.Device, *machine.Machine) {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	dev, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev, m
}

// Where no memory can be pinned the host route does it, and the receipt says why.
func TestNothingToPin(t *testing.T) {
	device, m := softDevice(t)
	poor := &pinless{Device: device}
	ladder, err := For(poor, dev.Of(m))
	if err != nil {
		t.Fatal(err)
	}
	defer ladder.Close()
	const n = 300_000
	data := noisy(n, 3)
	file := adopt(t, "file", data)
	plan := ladder.Plan(file)
	a, err := device.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(a)
	ops := []Op{{File: file, Mem: gpu.Span{Base: a, Len: n}, Kind: gpu.KindDevice}}
	for range 3 {
		res := make([]Receipt, 1)
		if err := plan.Run(context.Background(), ops, res); err != nil || res[0].Route != Host || res[0].Bytes != n || res[0].Host.Bytes != n {
			t.Fatalf("%v, %v", &res[0], err)
		}
		if d := res[0].Declined[Ring]; d == nil || d.Test != "pinned memory" || !strings.Contains(d.Evidence, "pin") {
			t.Errorf("the ring was declined for %v", d)
		}
		if d := res[0].Declined[Mapped]; d == nil || d.Test != "pinning" {
			t.Errorf("mapping was declined for %v", d)
		}
	}
	got := make([]byte, n)
	if err := device.CopyOut(got, a); err != nil || string(got) != string(data) {
		t.Errorf("wrong bytes, %v", err)
	}
	if poor.tries != 1 {
		t.Errorf("%d attempts to pin", poor.tries)
	}
	only, err := plan.Only(Ring)
	if err != nil {
		t.Fatal(err)
	}
	err = only.Run(context.Background(), ops, make([]Receipt, 1))
	if _, ok := errors.AsType[*RequireError](err); !ok {
		t.Errorf("with the ring required: %v", err)
	}
}

// Without a ring beside it BAR1 takes the whole crowd.
func TestCrowdWithoutRing(t *testing.T) {
	w := newWorld(t)
	b := w.mixed(t)
	b.other = NewRing(&pinless{Device: w.device})
	for range crowdMax {
		b.crowd.enter()
	}
	plan := &Plan{usable: []Route{b, NewHost(w.device)}}
	for range 2 {
		res := make([]Receipt, 1)
		if err := plan.Run(context.Background(), []Op{w.op(crowdLen)}, res); err != nil || res[0].By[Bar] != crowdLen {
			t.Fatalf("%v, %v", &res[0], err)
		}
	}
}

// The error of a batch names the file that it is about.
func TestRingNamesTheFile(t *testing.T) {
	dev, _ := softDevice(t)
	r := NewRing(dev)
	defer r.Close()
	const n = 100_000
	a, err := dev.Alloc(gpu.KindDevice, 2*n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Free(a)
	good, bad := adopt(t, "good", noisy(n, 1)), adopt(t, "bad", noisy(n, 2))
	ops := []Op{
		{File: good, Mem: gpu.Span{Base: a, Len: n}, Kind: gpu.KindDevice},
		{File: bad, Mem: gpu.Span{Base: 1 << 62, Len: n}, Kind: gpu.KindDevice},
		{File: good, Mem: gpu.Span{Base: a, Off: n, Len: n}, Kind: gpu.KindDevice},
	}
	res := make([]Receipt, len(ops))
	err = r.Run(context.Background(), ops, res)
	if err == nil || !strings.Contains(err.Error(), bad.Name) || strings.Contains(err.Error(), good.Name) {
		t.Errorf("the error: %v", err)
	}
	if res[0].Bytes != n || res[1].Bytes != 0 || res[2].Bytes != n {
		t.Errorf("%d, %d and %d bytes", res[0].Bytes, res[1].Bytes, res[2].Bytes)
	}
}
