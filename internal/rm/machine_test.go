package rm_test

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/internal/wc"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

// A machine is a software one.
type machine struct {
	os  *kernel.OS
	drv *softgpu.Driver
	rm  *nvrm.Manager
}

type config struct {
	gpus    int
	version string
	model   softgpu.Model
	backing softgpu.Backing
}

// newMachine makes a machine, and checks at the end of the test that nothing
// of it is left in use: objects, mappings, nodes, loans, descriptors.
func newMachine(t testing.TB, cfg config) *machine {
	t.Helper()
	if cfg.model.Name == "" {
		cfg.model = softgpu.H200()
		cfg.model.Memory = 64 << 20
	}
	models := []softgpu.Model{cfg.model}
	for len(models) < cfg.gpus {
		models = append(models, cfg.model)
	}
	before := descriptors(t)
	drv, err := softgpu.New(softgpu.Config{Models: models, Backing: cfg.backing, Scatter: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	o := kernel.New(fstest.MapFS{})
	emulated, err := nvrm.New(o, drv, cfg.version)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{o, drv, emulated}
	t.Cleanup(func() {
		m.idle(t)
		if err := emulated.Close(); err != nil {
			t.Error(err)
		}
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors were open before, %d are now", before, after)
		}
	})
	return m
}

// idle checks that the kernel holds nothing for anybody.
func (m *machine) idle(t testing.TB) {
	t.Helper()
	if objects, mappings, files := m.rm.Objects(), m.rm.Mappings(), m.os.OpenFiles(); objects+mappings+files != 0 {
		t.Errorf("left behind: %d objects, %d mappings, %d open files", objects, mappings, files)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func (m *machine) device(t testing.TB, i int) nvrm.Device {
	t.Helper()
	d, err := m.drv.Open(i)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return m.rm.Device(d)
}

func (m *machine) mapper(t testing.TB, g rm.GPU) *rm.Mapper {
	return newMapper(t, dev.Of(m.os), g, rm.NoBudget)
}

func newMapper(t testing.TB, o dev.OS, g rm.GPU, budget uint64) *rm.Mapper {
	t.Helper()
	mapper := rm.NewMapper(o, g, budget)
	t.Cleanup(func() {
		if n := mapper.Mapped(); n != 0 {
			t.Errorf("%d bytes are still mapped", n)
		}
		if err := mapper.Close(); err != nil {
			t.Error(err)
		}
	})
	return mapper
}

// alloc makes memory that holds a pattern.
func alloc(t testing.TB, d gpu.Device, k gpu.Kind, n uint64) gpu.Addr {
	t.Helper()
	a, err := d.Alloc(k, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Free(a); err != nil {
			t.Error(err)
		}
	})
	if k.OnDevice() {
		if err := d.CopyIn(a, pattern(int(n), uint64(a))); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// pattern is n bytes that depend on where they are.
func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte((seed + uint64(i)) * 0x9E3779B97F4A7C15 >> 56)
	}
	return b
}

func content(t testing.TB, d gpu.Device, a gpu.Addr, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if err := d.CopyOut(b, a); err != nil {
		t.Fatal(err)
	}
	return b
}

// storeTo copies to a mapping. GPU work submitted afterwards sees it.
func storeTo(m *rm.Mapping, off uint64, src []byte) (err error) {
	defer wc.Guard(wc.Arm(), &err)
	wc.Store(m.Bytes()[off:], src)
	wc.Fence()
	return nil
}

// loadFrom copies from a mapping.
func loadFrom(m *rm.Mapping, dst []byte, off uint64) (err error) {
	defer wc.Guard(wc.Arm(), &err)
	wc.Load(dst, m.Bytes()[off:])
	return nil
}
