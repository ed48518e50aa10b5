package ladder

import (
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// TestLabProofCost measures what proof of arrival costs on the kernel's peer-to-peer DMA:
// GPU memory is that of an NVMe drive, and a drive below the same switch is read. The
// guest is emulated, so the times say little and the shares more. The limits are more than
// twice what docs/direct.md has, because other tasks disturb an emulated CPU.
func TestLabProofCost(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_PEER")
	dir, err := inside.PCI("cmb")
	if err != nil {
		t.Fatal(err)
	}
	for n, limit := range map[uint64]float64{4 << 10: 0.3, 64 << 10: 0.15, 1 << 20: 0.03} {
		reads := int(min(1000, 200<<20/n)) // 1 MiB takes 10 to 30 ms in an emulated guest
		b := newProofBench(t, soft.Config{Memory: 32 << 20, Peer: filepath.Base(dir)}, filepath.Join(inside.Dir("sibling"), "f"), route.P2PDMA, n)
		c := b.measure(reads)
		t.Logf("p2pdma, %4d KiB: %.0f µs without proof, %.1f µs for the proof, %.2f %%", n>>10, c.without/1e3, c.proof/1e3, 100*c.proof/c.without)
		if c.proof/c.without > limit {
			t.Errorf("a proof of %d KiB is above %.0f %%", n>>10, 100*limit)
		}
	}
}
