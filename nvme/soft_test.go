package nvme_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/nvmetest"
	"github.com/culvert-io/culvert/soft/block"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/nvme/box"
	"github.com/culvert-io/culvert/soft/pcie"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ nvme.Transport = (*softnvme.Transport)(nil)

// newBox is a machine with one drive. When the test ends nothing must be left
// in use.
func newBox(t testing.TB, cfg box.Config, drive softnvme.Config) *box.Box {
	t.Helper()
	drive.Heap = raceEnabled
	if len(drive.Namespaces) == 0 {
		drive.Namespaces = []softnvme.Namespace{{Medium: block.NewMemory(16 << 20)}}
	}
	cfg.Drives = append(cfg.Drives, drive)
	b, err := box.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if u := b.Fabric.Usage(); u != (pcie.Usage{}) {
			t.Errorf("the fabric is left with %+v", u)
		}
	})
	return b
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
			b := newBox(t, box.Config{IOMMU: c.iommu}, c.drive)
			blocks := uint64(bad * 512 / c.size)
			b.Drives[0].FailBlock(1, blocks, softnvme.Read)
			nvmetest.Run(t, nvmetest.Drive{
				BadRead: blocks,
				Open: func(testing.TB) nvme.Transport {
					if c.scatter {
						return b.Drives[0].Transport(b.RM, rand.New(rand.NewPCG(3, 4)))
					}
					return b.Transport(0)
				},
			})
		})
	}
}
