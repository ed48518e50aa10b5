package suite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/lab"
)

const (
	module   = "github.com/culvert-io/culvert"
	selftest = module + "/lab/selftest" // of the lab itself
	datapath = module + "/lab/datapath" // of the project, on drives that fail
	ladder   = module + "/internal/ladder"
)

// All returns the table.
func All() []Suite {
	return slices.Concat(
		direct(), eachFS(faults), eachFS(powerCut), eachFS(crashes), vfio(), devices(), packages(), datapaths(), verbs(),
	)
}

// Storage suites run on a matrix of file systems and sector sizes.
var (
	fileSystems = []string{"ext4", "xfs"}
	sectors     = []int{512, 4096}
)

func eachFS(suite func(fs string) Suite) (ss []Suite) {
	for _, fs := range fileSystems {
		ss = append(ss, suite(fs))
	}
	return ss
}

// plain is a guest with one drive that has a file system.
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

func direct() (ss []Suite) {
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

func faults(fs string) Suite {
	// Shortly after a block group starts: no metadata of either file system.
	bad := minSize(fs)/512*7/8 + 4096
	fault := []lab.Fault{{Op: lab.Read, Sector: bad}}
	return Suite{
		Name:    "faults/" + fs,
		Package: selftest, Run: "^(TestMediumError.*|TestFullDisk)$", Min: 4,
		Guest: lab.Guest{Drives: []lab.Drive{
			{ID: "nv0", FS: fs, Size: minSize(fs), Faults: fault},
			{ID: "small", FS: fs, Size: minSize(fs)},
			{ID: "raw", Size: minSize(fs), Faults: fault},
		}},
		Env: []string{"CULVERT_WANT_BAD_SECTOR=" + strconv.FormatInt(bad, 10)},
	}
}

func powerCut(fs string) Suite {
	return Suite{
		Name:    "powercut/" + fs,
		Package: selftest, Run: "^TestPowerCut$", Min: 1,
		Guest: plain(fs, 512),
		Env:   []string{"CULVERT_WANT_POWERCUT=1"},
	}
}

// crashes records all writes of the first drive on the second. The states to test
// are kept in memory.
func crashes(fs string) Suite {
	return Suite{
		Name:    "crash/" + fs,
		Package: selftest, Run: "^(TestEveryPowerCut|TestUnflushedWriteIsLost)$", Min: 2,
		Guest: lab.Guest{Memory: 1536, Drives: []lab.Drive{
			{ID: "nv0", FS: fs, Sector: 512, Size: minSize(fs), LogTo: "log"},
			{ID: "log"},
		}},
		Env: []string{"CULVERT_WANT_CRASH=" + fs},
	}
}

// vfio runs the user-space NVMe driver on QEMU's controllers, one of which has
// memory in place of a GPU's BAR.
func vfio() (ss []Suite) {
	for _, sector := range sectors {
		const bad = 100 << 10 // in units of 512 bytes
		ss = append(ss, Suite{
			Name:    fmt.Sprintf("vfio/%d", sector),
			Package: module + "/nvme/vfio", Run: "^TestLab", Min: 8,
			Guest: lab.Guest{IOMMU: true, Drives: []lab.Drive{
				{ID: "nv0", Sector: sector, Faults: []lab.Fault{{Op: lab.Read, Sector: bad}}},
				{ID: "cmb", CMB: 16},
			}},
			Env: []string{"CULVERT_WANT_BAD_BLOCK=" + strconv.Itoa(bad*512/sector)},
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

// peer has a drive with memory in place of a GPU's, a sibling below the same
// switch, and a drive on the root bus, which peers cannot reach.
func peer() Suite {
	return Suite{
		Name:    "peer",
		Package: selftest, Run: "^TestPeer", Min: 4,
		Guest: lab.Guest{Drives: []lab.Drive{
			{ID: "cmb", CMB: 256, Behind: "sw"},
			{ID: "sibling", FS: "xfs", Behind: "sw"},
			{ID: "onroot"},
		}},
		Env:   []string{"CULVERT_WANT_PEER=1"},
		Needs: lab.PeerDMA,
	}
}

func devices() []Suite {
	return []Suite{unplug(), peer(), {
		Name:    "iommu",
		Package: selftest, Run: "^TestIOMMU$", Min: 1,
		Guest: lab.Guest{IOMMU: true, Drives: []lab.Drive{{ID: "nv0"}}},
		Env:   []string{"CULVERT_WANT_IOMMU=1"},
	}, {
		Name:    "network",
		Package: selftest, Run: "^TestNetwork$", Min: 1,
		Guest: lab.Guest{NICs: 2},
		Env:   []string{"CULVERT_WANT_NICS=1"},
	}}
}

// packages are the project's packages that use storage, with their own tests.
// Those that split requests run on the whole matrix, the others on two corners.
func packages() (ss []Suite) {
	for _, p := range []struct {
		path   string
		min    int
		matrix bool
		skip   string
	}{
		{"internal/storage", 7, false, ""},
		{"internal/uring", 5, false, ""},
		{"internal/ring", 25, true, only("TestMeasurements")}, // speed means nothing under emulation
		{"internal/ladder", 8, true, ""},
		{"cufile", 16, true, ""},
		{"internal/transfer", 4, false, ""},
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
					Package: module + "/" + p.path, Short: true, Min: p.min, Skip: p.skip,
					Guest: g,
				})
			}
		}
	}
	return ss
}

// only is a pattern for exactly these names.
func only(names ...string) string { return "^(" + strings.Join(names, "|") + ")$" }

// withoutNVFS disables the software machine's nvidia-fs, which is preferred to the
// kernel's peer-to-peer DMA.
const withoutNVFS = "CULVERT_NVFS=0"

// datapaths run tests of the project on the guests of other suites.
func datapaths() (ss []Suite) {
	on := func(s Suite, run string, min int) Suite {
		s.Name, s.Package, s.Run, s.Min = "datapath/"+s.Name, datapath, run, min
		return s
	}
	for _, s := range direct() {
		ss = append(ss, on(s, "^TestColdReadIsDirect$", 1))
	}
	ss = append(ss, eachFS(throttled)...)
	for _, s := range eachFS(faults) {
		ss = append(ss, on(s, "^(TestMediumError|TestCopyToFullDisk)$", 2))
	}
	for _, s := range eachFS(crashes) {
		ss = append(ss, on(s, "AtEveryPowerCut$", 3))
	}
	p2pdma := on(peer(), "^TestPeerRoute", 4)
	p2pdma.Name = "p2pdma"
	p2pdma.Env = append(p2pdma.Env, withoutNVFS)
	proof := peer()
	proof.Name, proof.Package, proof.Run, proof.Min = "p2pdma/proof", ladder, "^TestLabProofCost$", 1
	return append(ss, proof, on(unplug(), "^TestUnplugUnderRead$", 1), handles(), p2pdma, onPeerMemory(), stacks(), stacksOnPeerMemory(),
		nfs(), group(), nodes())
}

// nfs exports a directory of a drive to the guest itself.
func nfs() Suite {
	g := plain("ext4", 512)
	g.Modules = []string{"nfsd", "nfsv4"}
	return Suite{
		Name:    "cache/nfs",
		Package: datapath, Run: "^TestNFS$", Min: 1,
		Guest: g, Needs: lab.NFSServer,
		Env: []string{"CULVERT_WANT_NFS=1", withoutNVFS},
	}
}

// group has more memory than a control group of it may use.
func group() Suite {
	g := plain("ext4", 512)
	g.Memory = 1536
	return Suite{
		Name:    "cache/group",
		Package: datapath, Run: "^TestControlGroup$", Min: 1,
		Guest: g, Needs: lab.MemoryGroups,
		Env: []string{"CULVERT_WANT_GROUP=1", withoutNVFS},
	}
}

// nodes has two memory nodes, and a device on each in place of a GPU.
func nodes() Suite {
	return Suite{
		Name:    "ring/nodes",
		Package: module + "/internal/ring", Run: "^TestLabMemoryNodes$", Min: 1,
		Guest: lab.Guest{CPUs: 4, Memory: 1024, Nodes: 2, Drives: []lab.Drive{
			{ID: "far", FS: "ext4", Behind: lab.RootPort},
			{ID: "near", Size: 64 << 20, Behind: lab.RootPort, Node: 1},
		}},
		Needs: lab.MemoryNodes,
		Env:   []string{"CULVERT_WANT_NODES=1"},
	}
}

// throttled has a drive that is slower than any host, and little memory.
func throttled(fs string) Suite {
	const rate = 16 << 20
	return Suite{
		Name:    "cold/" + fs,
		Package: datapath, Run: "^(TestColdPasses|TestLargerThanMemory|TestMemoryPressure)$", Min: 3,
		Guest: lab.Guest{Memory: 640, Drives: []lab.Drive{{ID: "nv0", FS: fs, Rate: rate}}},
		Env:   []string{"CULVERT_WANT_RATE=" + strconv.Itoa(rate), withoutNVFS},
	}
}

// stacks has raw drives, from which tests build block stacks.
func stacks() Suite {
	return Suite{
		Name:    "stacks",
		Package: datapath, Run: "^(TestStacks|TestMirrorSpreadsReads)$", Min: 1,
		Guest: lab.Guest{Memory: 1024, Drives: []lab.Drive{
			{ID: "nv0", FS: "ext4"},
			{ID: "raw1", Size: 64 << 20},
			{ID: "raw2", Size: 64 << 20},
			{ID: "raw3", Size: 64 << 20},
		}, Modules: []string{"loop", "dm_mod", "dm_delay", "dm_flakey", "dm_crypt", "aes_generic", "ecb", "xts", "md_mod", "raid0", "raid1", "raid456", "btrfs"}},
		Env: []string{"CULVERT_WANT_STACKS=1", withoutNVFS},
	}
}

// stacksOnPeerMemory has the drives below a switch, with one whose memory is the GPU's.
func stacksOnPeerMemory() Suite {
	s := stacks()
	s.Name, s.Needs = "stacks/p2pdma", lab.PeerDMA
	s.Env = append(s.Env, "CULVERT_WANT_PEER=1")
	drives := []lab.Drive{{ID: "cmb", CMB: 256, Behind: "sw"}}
	for _, d := range s.Guest.Drives {
		d.Behind = "sw"
		drives = append(drives, d)
	}
	s.Guest.Drives = drives
	return s
}

// handles has files that are not on a disk's file system.
func handles() Suite {
	return Suite{
		Name:    "datapath/handles",
		Package: datapath, Run: "^TestHandles$", Min: 1,
		Guest: lab.Guest{Memory: 1024, Drives: []lab.Drive{
			{ID: "nv0", FS: "xfs"},
			{ID: "raw512", Size: 64 << 20},
			{ID: "raw4096", Size: 64 << 20, Sector: 4096},
		}},
		Env: []string{"CULVERT_WANT_HANDLES=1"},
	}
}

// onPeerMemory runs the cuFile tests on a GPU whose memory is a drive's, so that
// every route, including p2pdma, moves data there.
func onPeerMemory() Suite {
	g := peer().Guest
	g.Memory = 1536
	return Suite{
		Name:    "cufile/p2pdma",
		Package: module + "/cufile", Short: true, Min: 22,
		// Two describe a machine without a direct route; two take long, run on other
		// guests and hardly depend on where memory is.
		Skip:  only("TestLogger", "TestProperties", "TestShrinkingFile", "TestStress"),
		Guest: g, Needs: lab.PeerDMA,
		Env: []string{"CULVERT_SOFT=peer=0000:03:00.0", withoutNVFS}, // the first drive below the switch
	}
}

// verbs runs the conformance suite of verbs on the kernel's software RoCE, and two hosts
// of which one loses its power; then NVMe over RDMA, with the kernel's target and our host,
// and with the kernel's target and host under the cuFile tests.
func verbs() []Suite {
	return []Suite{{
		Name:    "verbs",
		Package: module + "/rdma/ibverbs", Run: "^TestLab", Min: 1,
		Guest: lab.Guest{NICs: 1, Verbs: true},
		Env:   []string{"CULVERT_WANT_VERBS=1"},
	}, {
		Name:    "verbs/pair",
		Package: module + "/rdma/ibverbs", Run: "^TestPair", Min: 1,
		Guest: lab.Guest{NICs: 1, Verbs: true, Memory: 512},
		Env:   []string{"CULVERT_WANT_PAIR=1"}, Pair: true,
	}, {
		Name:    "fabrics",
		Package: module + "/nvme/fabrics", Run: "^TestLabKernelTarget$", Min: 1,
		Guest: lab.Guest{NICs: 1, Verbs: true, Drives: []lab.Drive{{ID: "raw", Size: 64 << 20}}, Modules: []string{"rdma_ucm", "nvmet_rdma"}},
		Env:   []string{"CULVERT_WANT_FABRICS=1"},
	}, {
		Name:    "fabrics/host",
		Package: module + "/nvme/fabrics", Run: "^TestLabKernelHost$", Min: 1,
		Guest: lab.Guest{NICs: 1, Verbs: true, Drives: []lab.Drive{{ID: "nv0", FS: "ext4", Size: 64 << 20}}, Modules: []string{"rdma_ucm", "nvme_rdma"}},
		Env:   []string{"CULVERT_WANT_FABRICS_HOST=1"},
	}, {
		Name:    "rdma",
		Package: module + "/cmd/culvert", Run: "^TestLabRDMA$", Min: 1,
		Guest: lab.Guest{NICs: 1, Verbs: true},
		Env:   []string{"CULVERT_WANT_RDMA=1"},
	}, {
		Name:    "perftest",
		Package: module + "/cmd/culvert", Run: "^TestLabPerftest$", Min: 1,
		Guest: lab.Guest{NICs: 1, Verbs: true, Perftest: true},
		Env:   []string{"CULVERT_WANT_PERFTEST=1"},
	}, {
		Name:    "check/nic",
		Package: module + "/internal/check", Run: "^TestLabNIC$", Min: 1,
		Guest: lab.Guest{NICs: 1, Verbs: true},
		Env:   []string{"CULVERT_WANT_NIC=1"},
	}, {
		Name:    "remote",
		Package: selftest, Run: "^TestRemoteDrive$", Min: 1,
		Guest: lab.Guest{NICs: 1, Drives: []lab.Drive{{ID: "nv0", FS: "xfs", Remote: true}}},
		Env:   []string{"CULVERT_WANT_REMOTE=1"},
	}, {
		Name:    "cufile/rdma",
		Package: module + "/cufile", Short: true, Min: 8,
		// The others pass, too, and depend less on what is below the file system.
		Run: only("TestRoutesAgree", "TestWritesAgree", "TestODirect", "TestCancelledReadStops", "TestBatchMixes",
			"TestDirectOnlyRefusesStagedRoutes", "TestReceiptNamesWhatWasDeclined", "TestShrinkingFile"),
		Guest: lab.Guest{Memory: 2048, NICs: 1, Drives: []lab.Drive{{ID: "nv0", FS: "xfs", Remote: true}}},
	}}
}
