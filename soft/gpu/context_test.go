package gpu_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	for name, cfg := range map[string]softgpu.Config{
		"too many":  {Models: make([]softgpu.Model, 17)},
		"too small": {Models: tiny(1 << 20)},
		"backing":   {Backing: 9},
	} {
		if _, err := softgpu.New(cfg); !errors.Is(err, gpu.ErrInvalidValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMachinesAreDescribedAsData(t *testing.T) {
	models := []softgpu.Model{softgpu.H200(), softgpu.SmallBAR(), softgpu.Pageable()}
	d := open(t, softgpu.Config{Models: models, Seed: 5})
	infos, err := d.Devices()
	must(t, err)
	uuids := map[gpu.UUID]bool{}
	for i, info := range infos {
		g, err := d.GPU(i)
		must(t, err)
		if info.Index != i || info.Name != models[i].Name || info.Memory != softgpu.DefaultMemory || g.Info() != info || g.Index() != i {
			t.Errorf("GPU %d is %+v", i, info)
		}
		uuids[info.UUID] = true
		x, err := d.Open(i)
		must(t, err)
		for a, want := range models[i].Attributes {
			if got, err := x.Attribute(a); got != want || err != nil {
				t.Errorf("GPU %d: %v is %d (%v), want %d", i, a, got, err, want)
			}
		}
	}
	if len(uuids) != 3 {
		t.Errorf("%d different UUIDs of 3", len(uuids))
	}
	for i, want := range []struct {
		bar1                uint64
		sms, rdma, pageable int
	}{{256 << 30, 132, 1, 0}, {256 << 20, 82, 0, 0}, {256 << 30, 132, 1, 1}} {
		g, err := d.GPU(i)
		must(t, err)
		m := g.Model()
		if m.BAR1 != want.bar1 || m.Multiprocs != want.sms || m.Attributes[abi.AttrGPUDirectRDMA] != want.rdma ||
			m.Attributes[gpu.AttrPageableMemoryAccess] != want.pageable {
			t.Errorf("GPU %d: %+v, want %+v", i, m, want)
		}
	}
	_, err = d.GPU(3)
	wantCode(t, "GPU 3", err, gpu.ErrInvalidDevice)
}

func TestUseAfterDriverClose(t *testing.T) {
	d, x := device(t, softgpu.Config{})
	s := stream(t, x)
	must(t, d.Close())
	_, err := d.Open(0)
	if err == nil {
		t.Error("a closed driver opens GPUs")
	}
	wantCode(t, "device", x.Synchronize(), gpu.ErrContextDestroyed)
	wantCode(t, "stream", s.Synchronize(), gpu.ErrContextDestroyed)
	_, err = x.NewContext(0)
	wantCode(t, "new context", err, gpu.ErrDeinitialized)
}

func TestExportIsADescriptorWithALifeOfItsOwn(t *testing.T) {
	const n = 4 << 20
	d, x := device(t, softgpu.Config{Models: tiny(8 << 20), Scatter: true})
	a := alloc(t, x, gpu.KindDevice, n)
	must(t, x.CopyIn(a, text(n)))
	f, err := x.Export(a+65536, n/2, gpu.ExportDMABuf)
	must(t, err)
	if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED); err == nil {
		t.Error("the kernel maps the descriptor, which is not the memory")
	}
	l, err := d.AcquireExport(int(f.Fd()))
	must(t, err)
	if string(join(l.Segs())) != string(text(n)[65536:65536+n/2]) {
		t.Error("the export has other bytes")
	}
	l.Release()

	free(t, x, a)
	if got := freeMemory(t, x); got != 4<<20 {
		t.Errorf("%d bytes free while the descriptor is open", got)
	}
	dup, err := unix.Dup(int(f.Fd()))
	must(t, err)
	must(t, f.Close())
	second := os.NewFile(uintptr(dup), "dup")
	l, err = d.AcquireExport(dup)
	must(t, err)
	l.Release()
	must(t, second.Close())
	if got := freeMemory(t, x); got != 8<<20 {
		t.Errorf("%d bytes free after the last descriptor was closed", got)
	}
	_, err = d.AcquireExport(dup)
	wantCode(t, "closed descriptor", err, gpu.ErrInvalidValue)
}

func TestExportMeansNothingToAnotherDriver(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	_, y := device(t, softgpu.Config{})
	f, err := x.Export(alloc(t, x, gpu.KindVirtual, 1), 1, gpu.ExportPosixFD)
	must(t, err)
	defer f.Close()
	_, err = y.Import(f, 1)
	wantCode(t, "import", err, gpu.ErrUnknown) // CUDA's answer to strange descriptors
}

// TestOutOfMemoryLooksForClosedExports needs memory that only a closed
// descriptor holds.
func TestOutOfMemoryLooksForClosedExports(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(4 << 20)})
	a := alloc(t, x, gpu.KindVirtual, 4<<20)
	f, err := x.Export(a, 1, gpu.ExportPosixFD)
	must(t, err)
	free(t, x, a)
	_, err = x.Alloc(gpu.KindDevice, 4<<20, 0)
	wantCode(t, "while it is open", err, gpu.ErrOutOfMemory)
	must(t, f.Close())
	free(t, x, alloc(t, x, gpu.KindDevice, 4<<20))
}
