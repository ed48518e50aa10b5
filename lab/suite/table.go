// Package suite is the table of what the lab runs: which tests, on which
// guest. A suite joins by adding an entry to the table.
package suite

import (
	"fmt"
	"slices"
	"time"

	"github.com/culvert-io/culvert/lab"
	"github.com/culvert-io/culvert/lab/crash"
)

// A Suite is a set of tests of one package on one guest.
type Suite struct {
	Name    string
	Package string // import path
	Run     string // pattern of top-level tests, as go test -run; "" means all
	Skip    string // pattern of tests to leave out, as go test -skip, with the reason beside it in the table
	Short   bool   // run with -short
	Min     int    // top-level tests that must pass: fewer means that tests vanished or skip
	Guest   lab.Guest
	Env     []string
	Peer    bool          // needs a kernel with peer-to-peer DMA
	Timeout time.Duration // 0 means DefaultTimeout
}

// DefaultTimeout ends a suite that hangs. It is many times what one takes, for
// machines under load.
const DefaultTimeout = 6 * time.Minute

// Soak is the suite without bounds on its time: every point of a crash suite,
// no -short.
func (s Suite) Soak() Suite {
	s.Env = append(slices.Clip(s.Env), crash.PointsEnv+"=all")
	s.Short = false
	s.Timeout = 3 * s.timeout()
	return s
}

func (s Suite) timeout() time.Duration {
	if s.Timeout == 0 {
		return DefaultTimeout
	}
	return s.Timeout
}

const module = "github.com/culvert-io/culvert"

// The matrix that storage suites run on.
var (
	fileSystems = []string{"ext4", "xfs"}
	sectors     = []int{512, 4096}
)

// All returns the table.
func All() []Suite {
	return slices.Concat(
		direct(), faults(), powerCuts(), crashes(), vfio(), []Suite{unplug(), peer(), iommu(), network()},
		packages(), datapath(),
	)
}

// Named returns the suite with the given name.
func Named(name string) (Suite, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return Suite{}, fmt.Errorf("no suite is called %q (lab suites -list shows them)", name)
}

// plain is a guest with one drive that carries a file system.
func plain(fs string, sector int) lab.Guest {
	return lab.Guest{Drives: []lab.Drive{{ID: "nv0", FS: fs, Sector: sector}}}
}

// minSize is about the smallest drive that mkfs accepts.
func minSize(fs string) int64 {
	if fs == "xfs" {
		return 320 << 20
	}
	return 64 << 20
}
