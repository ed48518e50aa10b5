package suite

import (
	"fmt"
	"strconv"

	"github.com/culvert-io/culvert/lab"
)

// The suites of the bench itself.
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
			Package: selftest, Run: "^(TestMediumError.*|TestFullDisk)$", Min: 4,
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
			Package: selftest, Run: "^(TestEveryPowerCut|TestUnflushedWriteIsLost)$", Min: 2,
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
		{ID: "cmb", CMB: 256, Behind: "sw"},
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
