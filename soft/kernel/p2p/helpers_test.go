package p2p

import (
	"bytes"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/internal/topology"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A fixture is a machine with GPUs, a resource manager and two engines: one below
// the first GPU's switch, one at another root port.
type fixture struct {
	t         fataler
	points    syncpoint.Points
	iommu     pcie.IOMMU
	fabric    *pcie.Fabric
	drv       *softgpu.Driver
	dev       gpu.Device
	rm        *RM
	task      *Task
	near, far *pcie.Function
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

type setup struct {
	iommu   pcie.IOMMU
	memory  uint64 // of a GPU; 0 means 16 MiB
	bar1    uint64 // 0 means static
	gpus    int
	mapped  bool // memory that can be mapped, not heap
	scatter bool
	force   bool
	fail    func(string) bool
}

func newFixture(t fataler, s setup) *fixture {
	t.Helper()
	r := &fixture{t: t, iommu: s.iommu}
	if s.memory == 0 {
		s.memory = 16 << 20
	}
	m := softgpu.H200()
	m.Memory = s.memory
	if s.bar1 != 0 {
		m.BAR1 = s.bar1
	}
	cfg := softgpu.Config{Scatter: s.scatter, Seed: 1, Backing: softgpu.Heap}
	for range max(s.gpus, 1) {
		cfg.Models = append(cfg.Models, m)
	}
	if s.mapped {
		cfg.Backing = softgpu.Mapped
	}
	var err error
	r.drv, err = softgpu.New(cfg)
	r.check(err)
	r.dev, err = r.drv.Open(0)
	r.check(err)
	infos, err := r.drv.Devices()
	r.check(err)
	var gpus []string
	for _, info := range infos {
		gpus = append(gpus, info.PCI)
	}
	pci, err := topology.New(pcie.Config{IOMMU: s.iommu, Points: &r.points}, pcie.ForwardOwn, gpus)
	r.check(err)
	r.fabric = pci.Fabric
	r.near, err = pci.Plug(0)
	r.check(err)
	r.far, err = pci.Plug(-1)
	r.check(err)
	r.rm, err = NewRM(Config{GPUs: r.drv, Ports: pci.GPUs, Points: &r.points, ForceBAR1: s.force, Fail: s.fail})
	r.check(err)
	r.task = r.rm.Self.Task()
	return r
}

func (r *fixture) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// close takes the machine apart and fails on what is left over.
func (r *fixture) close() {
	r.t.Helper()
	if n := r.rm.Live(); n != 0 {
		r.t.Errorf("%d pins are left", n)
	}
	for i := range r.rm.cards {
		if n := r.rm.BAR1Used(i); n != 0 {
			r.t.Errorf("%d bytes of BAR1 of GPU %d are left in use", n, i)
		}
	}
	if u := r.fabric.Usage(); u.Accesses != 0 || u.Mappings != 0 || u.Windows != len(r.rm.cards) {
		r.t.Errorf("the fabric is left with %+v", u)
	}
	r.check(r.rm.Close())
	r.check(r.dev.Close())
	r.check(r.drv.Close()) // fails if accesses are left
}

func (r *fixture) alloc(n uint64) uint64 {
	r.t.Helper()
	a, err := r.dev.Alloc(gpu.KindDevice, n, 0)
	r.check(err)
	return uint64(a)
}

func (r *fixture) free(va uint64) {
	r.t.Helper()
	r.check(r.dev.Free(gpu.Addr(va)))
}

func (r *fixture) fill(va uint64, n int, b byte) {
	r.t.Helper()
	r.check(r.dev.CopyIn(gpu.Addr(va), bytes.Repeat([]byte{b}, n)))
}

func (r *fixture) read(va uint64, n int) []byte {
	r.t.Helper()
	p := make([]byte, n)
	r.check(r.dev.CopyOut(p, gpu.Addr(va)))
	return p
}

// pin pins with a callback that counts.
func (r *fixture) pin(va, n uint64) (*PageTable, *int) {
	r.t.Helper()
	calls := new(int)
	t, err := r.rm.GetPages(r.task, va, n, func(*Task, *PageTable) { *calls++ })
	r.check(err)
	return t, calls
}

func (r *fixture) put(va uint64, t *PageTable) {
	r.t.Helper()
	r.check(r.rm.PutPages(r.task, va, t))
}

func ranges(addrs []uint64) []pcie.Range {
	var sg []pcie.Range
	for _, a := range addrs {
		sg = append(sg, pcie.Range{Bus: a, Len: PageSize})
	}
	return sg
}

func TestMain(m *testing.M) { goleakMain(m) }
