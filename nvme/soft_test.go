package nvme_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/nvmetest"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/block"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

func TestMain(m *testing.M) {
	// Parallel tests wait for timeouts and use no processor meanwhile.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

var _ nvme.Transport = (*softnvme.Transport)(nil)

// newMachine returns a machine with one drive. When the test ends nothing may be in
// use.
func newMachine(t testing.TB, cfg soft.Config, drive soft.Drive) *soft.Machine {
	t.Helper()
	if len(drive.Namespaces) == 0 {
		drive.Size = 16 << 20
	}
	cfg.Memory, cfg.Heap, cfg.Drives = 64<<20, raceEnabled, []soft.Drive{drive}
	m, err := soft.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.InUse(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// fileDisk is a drive in a file.
func fileDisk(t testing.TB, size int64) *block.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "drive"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	d, err := block.Adopt(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestSoftwareController runs the driver's suite on software drives of several
// kinds.
func TestSoftwareController(t *testing.T) {
	const bad = 10 << 10
	for name, c := range map[string]struct {
		iommu   pcie.IOMMU
		scatter bool
		drive   softnvme.Config
		size    int
	}{
		"plain":       {size: 512},
		"translating": {iommu: pcie.Translating, size: 512},
		"scattered":   {scatter: true, size: 512},
		"odd":         {size: 4096, drive: softnvme.Config{Stride: 3, Queues: 3, Entries: 64, MaxTransfer: 32 << 10, Workers: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // much of it is waiting
			c.drive.Namespaces = []softnvme.Namespace{{Medium: fileDisk(t, 16<<20), BlockSize: c.size}}
			m := newMachine(t, soft.Config{IOMMU: c.iommu}, soft.Drive{Config: c.drive})
			blocks := uint64(bad * 512 / c.size)
			m.Drives()[0].FailBlock(1, blocks, softnvme.Read)
			nvmetest.Run(t, nvmetest.Drive{
				BadRead: blocks,
				Open: func(testing.TB) nvme.Transport {
					if c.scatter {
						return m.Drives()[0].Transport(m.P2P(), rand.New(rand.NewPCG(3, 4)))
					}
					return m.Transport(0)
				},
			})
		})
	}
}
