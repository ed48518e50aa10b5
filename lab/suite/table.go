// Package suite is the table of what the lab runs: which tests, on which
// guest. A suite joins by adding an entry to the table.
package suite

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/culvert-io/culvert/lab"
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
const DefaultTimeout = 2 * time.Minute

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
	return slices.Concat(direct(), faults(), powerCuts(), crashes(), []Suite{unplug(), peer(), iommu(), network()})
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

const selftest = module + "/lab/selftest"

func direct() []Suite {
	var ss []Suite
	for _, fs := range fileSystems {
		for _, sector := range sectors {
			ss = append(ss, Suite{
				Name:    fmt.Sprintf("direct/%s/%d", fs, sector),
				Package: selftest, Run: "^(TestGuestIsAsDescribed|TestDirect.*)$", Min: 3,
				Guest: plain(fs, sector),
				Env:   []string{"CULVERT_WANT_FS=" + fs, "CULVERT_WANT_SECTOR=" + strconv.Itoa(sector)},
			})
		}
	}
	return ss
}

func faults() []Suite {
	var ss []Suite
	for _, fs := range fileSystems {
		// Where neither file system keeps anything of its own: a little
		// behind a group's border.
		bad := minSize(fs)/512*7/8 + 4096
		fault := []lab.Fault{{Op: lab.Read, Sector: bad}}
		ss = append(ss, Suite{
			Name:    "faults/" + fs,
			Package: selftest, Run: "^(TestMediumError.*|TestFullDisk)$", Min: 3,
			Guest: lab.Guest{Drives: []lab.Drive{
				{ID: "nv0", FS: fs, Size: minSize(fs), Faults: fault},
				{ID: "small", FS: fs, Size: minSize(fs)},
				{ID: "raw", Size: minSize(fs), Faults: fault},
			}},
			Env: []string{"CULVERT_WANT_BAD_SECTOR=" + strconv.FormatInt(bad, 10)},
		})
	}
	return ss
}

func powerCuts() []Suite {
	var ss []Suite
	for _, fs := range fileSystems {
		ss = append(ss, Suite{
			Name:    "powercut/" + fs,
			Package: selftest, Run: "^TestPowerCut$", Min: 1,
			Guest: plain(fs, 512),
			Env:   []string{"CULVERT_WANT_POWERCUT=1"},
		})
	}
	return ss
}

// recorded is a guest whose first drive has all its writes recorded on the
// second. The states to visit are kept in memory.
func recorded(fs string, sector int) lab.Guest {
	return lab.Guest{Memory: 1536, Drives: []lab.Drive{
		{ID: "nv0", FS: fs, Sector: sector, Size: minSize(fs), LogTo: "log"},
		{ID: "log"},
	}}
}

func crashes() []Suite {
	var ss []Suite
	for _, fs := range fileSystems {
		ss = append(ss, Suite{
			Name:    "crash/" + fs,
			Package: selftest, Run: "^TestEveryPowerCut$", Min: 1,
			Guest: recorded(fs, 512),
			Env:   []string{"CULVERT_WANT_CRASH=" + fs},
		})
	}
	return ss
}

func unplug() Suite {
	return Suite{
		Name:    "unplug",
		Package: selftest, Run: "^TestUnplug", Min: 2,
		Guest: lab.Guest{Drives: []lab.Drive{
			{ID: "hotraw", Behind: lab.RootPort},
			{ID: "hotfs", FS: "xfs", Behind: lab.RootPort},
		}},
		Env: []string{"CULVERT_WANT_UNPLUG=1"},
	}
}

// peerGuest has a drive with memory that plays the GPU's part, a sibling below
// the same switch, and a drive on the root bus, out of reach for peers.
func peerGuest() lab.Guest {
	return lab.Guest{Drives: []lab.Drive{
		{ID: "cmb", CMB: 64, Behind: "sw"},
		{ID: "sibling", FS: "xfs", Behind: "sw"},
		{ID: "onroot"},
	}}
}

func peer() Suite {
	return Suite{
		Name:    "peer",
		Package: selftest, Run: "^TestPeer", Min: 4,
		Guest: peerGuest(),
		Env:   []string{"CULVERT_WANT_PEER=1"},
		Peer:  true,
	}
}

func iommu() Suite {
	return Suite{
		Name:    "iommu",
		Package: selftest, Run: "^TestIOMMU$", Min: 1,
		Guest: lab.Guest{IOMMU: true, Drives: []lab.Drive{{ID: "nv0"}}},
		Env:   []string{"CULVERT_WANT_IOMMU=1"},
	}
}

func network() Suite {
	return Suite{
		Name:    "network",
		Package: selftest, Run: "^TestNetwork$", Min: 1,
		Guest: lab.Guest{NICs: []lab.NIC{{}, {}}},
		Env:   []string{"CULVERT_WANT_NICS=1"},
	}
}
