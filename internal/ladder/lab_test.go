package ladder

import (
	"fmt"
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
	for _, c := range []struct {
		n     uint64
		limit float64
	}{{4 << 10, 0.3}, {64 << 10, 0.15}, {1 << 20, 0.03}} {
		t.Run(fmt.Sprintf("%dK", c.n>>10), func(t *testing.T) { // each with a machine of its own
			reads := int(min(1000, 200<<20/c.n)) // 1 MiB takes 10 to 30 ms in an emulated guest
			b := newProofBench(t, soft.Config{Memory: 32 << 20, Peer: filepath.Base(dir)}, filepath.Join(inside.Dir("sibling"), "f"), route.P2PDMA, c.n)
			cost := b.measure(reads)
			t.Logf("p2pdma, %4d KiB: %.0f µs without proof, %.1f µs for the proof, %.2f %%", c.n>>10, cost.without/1e3, cost.proof/1e3, 100*cost.proof/cost.without)
			if cost.proof/cost.without > c.limit {
				t.Errorf("a proof of %d KiB is above %.0f %%", c.n>>10, 100*c.limit)
			}
		})
	}
}
