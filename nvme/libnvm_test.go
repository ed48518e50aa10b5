package nvme_test

import (
	"errors"
	"os"
	"testing"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/libnvm"
	"github.com/culvert-io/culvert/nvme/nvmetest"
	"github.com/culvert-io/culvert/soft"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// seen is a software machine as package machine shows it.
func seen(m *soft.Machine) *machine.Machine { return dev.With(&machine.Machine{Soft: true}, dev.Of(m)) }

// TestLibnvm runs the driver's suite through the module's client and the emulated
// module: registers in mapped memory, and no interrupts.
func TestLibnvm(t *testing.T) {
	for name, mode := range map[string]pcie.IOMMU{"off": pcie.Off, "translating": pcie.Translating} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // much of it is waiting
			m := newMachine(t, soft.Config{IOMMU: mode}, soft.Drive{Config: softnvme.Config{Namespaces: []softnvme.Namespace{{Medium: fileDisk(t, 16<<20)}}}})
			m.Drives()[0].FailBlock(1, 10<<10, softnvme.Read)
			nvmetest.Run(t, nvmetest.Drive{
				BadRead: 10 << 10,
				Open: func(t testing.TB) nvme.Transport {
					tr, err := libnvm.Open(seen(m), "/dev/libnvm0")
					if err != nil {
						t.Fatal(err)
					}
					return tr
				},
			})
		})
	}
}

// TestLibnvmGPU moves a drive's blocks to GPU memory, and frees it while it is
// mapped.
func TestLibnvmGPU(t *testing.T) {
	r := newGPUFixture(t, gpuSetup{})
	m := seen(r.m)
	if list := libnvm.Paths(m); len(list) != 1 || list[0] != "/dev/libnvm0" {
		t.Errorf("nodes: %v", list)
	}
	tr, err := libnvm.Open(m, "/dev/libnvm0")
	r.check(err)
	if err := tr.Reset(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a function level reset, for which the module has no way: %v", err)
	}
	c, err := nvme.Open(tr, nvme.Config{})
	r.check(err)
	b, err := c.AllocGPU(r.dev, diskSize)
	r.check(err)
	before := r.account()
	r.check(c.Namespaces()[0].Read(r.ctx, b, 0, 0, diskSize/512))
	if read, written := r.dataBytes(before); read != 0 || written != 0 {
		t.Errorf("%d bytes of data were read from host memory and %d written to it", read, written)
	}
	if string(r.out(b.Span())) != string(r.content) {
		t.Error("GPU memory holds other bytes than the drive")
	}
	r.check(r.dev.Free(b.Span().Base))
	if err := c.Namespaces()[0].Read(r.ctx, b, 0, 0, 8); !errors.Is(err, nvme.StatusDataTransferError) {
		t.Errorf("read to memory that was freed: %v", err)
	}
	if err := b.Close(); !errors.Is(err, nvme.ErrRevoked) {
		t.Errorf("close: %v, want %v", err, nvme.ErrRevoked)
	}
	if _, err := libnvm.Open(m, "/dev/libnvm1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a node that is not there: %v", err)
	}
	r.check(c.Close())
	r.check(r.c.Reset()) // the fixture's own driver still works
}
