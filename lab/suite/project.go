package suite

import (
	"fmt"
	"strings"

	"github.com/culvert-io/culvert/lab"
)

// packages are the project's packages that touch storage, with their own
// tests. The ones that cut requests run on every file system and sector size,
// the others on the two corners.
func packages() []Suite {
	var ss []Suite
	for _, p := range []struct {
		path   string
		min    int
		matrix bool
		skip   []string
	}{
		{"internal/storage", 7, false, nil},
		{"internal/uring", 8, false, nil},
		{"internal/ring", 25, true, []string{"TestMeasurements"}}, // speed means nothing under emulation
		{"internal/ladder", 8, true, nil},
		{"cufile", 16, true, nil},
		{"internal/transfer", 4, false, nil},
	} {
		for i, fs := range fileSystems {
			for j, sector := range sectors {
				if i != j && !p.matrix {
					continue
				}
				g := plain(fs, sector)
				g.Memory = 2048
				ss = append(ss, Suite{
					Name:    fmt.Sprintf("%s/%s/%d", p.path, fs, sector),
					Package: module + "/" + p.path, Short: true, Min: p.min, Skip: anyOf(p.skip),
					Guest: g,
				})
			}
		}
	}
	return ss
}

// anyOf is a pattern for exactly these names.
func anyOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

const datapathTests = module + "/lab/datapath"

// datapath are tests of the project's code on drives that fail.
func datapath() []Suite {
	var ss []Suite
	onto := func(s Suite, run string, min int) Suite {
		s.Name, s.Package, s.Run, s.Min = "datapath/"+s.Name, datapathTests, run, min
		return s
	}
	for _, s := range direct() {
		ss = append(ss, onto(s, "^TestColdReadIsDirect$", 1))
	}
	for _, s := range faults() {
		ss = append(ss, onto(s, "^(TestMediumError|TestCopyToFullDisk)$", 2))
	}
	for _, s := range crashes() {
		ss = append(ss, onto(s, "AtEveryPowerCut$", 3))
	}
	pulled := onto(unplug(), "^TestUnplugUnderRead$", 1)
	p2pdma := onto(peer(), "^TestPeerRoute", 4)
	p2pdma.Name = "p2pdma"
	p2pdma.Env = append(p2pdma.Env, withoutNVFS)
	return append(ss, pulled, handles(), p2pdma, onPeerMemory())
}

// handles has what is no file on a disk's file system.
func handles() Suite {
	return Suite{
		Name:    "datapath/handles",
		Package: datapathTests, Run: "^TestHandles$", Min: 1,
		Guest: lab.Guest{Memory: 1024, Drives: []lab.Drive{
			{ID: "nv0", FS: "xfs"},
			{ID: "raw512", Size: 64 << 20},
			{ID: "raw4096", Size: 64 << 20, Sector: 4096},
		}},
		Env: []string{"CULVERT_WANT_HANDLES=1"},
	}
}

// onPeerMemory has the cuFile tests run on a GPU whose memory is a drive's, so
// that every route, p2pdma among them, moves the same bytes there.
func onPeerMemory() Suite {
	g := peerGuest()
	g.Memory = 1536
	return Suite{
		Name:    "cufile/p2pdma",
		Package: module + "/cufile", Short: true, Min: 22,
		// Two describe a machine without a direct route; two take long and run on
		// other guests, since most of what they do is not about where memory is.
		Skip:  anyOf([]string{"TestLogger", "TestProperties", "TestShrinkingFile", "TestStress"}),
		Guest: g, Peer: true,
		Env: []string{"CULVERT_SOFT=peer=0000:03:00.0", withoutNVFS}, // the first drive below the switch
	}
}

// withoutNVFS leaves the software machine's own nvidia-fs out, which stands above
// the kernel's peer-to-peer DMA.
const withoutNVFS = "CULVERT_NVFS=0"
