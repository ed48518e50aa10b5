package cufile

import "github.com/culvert-io/culvert/route"

// Version is the release of cuFile whose API this is, as cuFileGetVersion tells
// it: 1150 is 1.15.
const Version = 1150

// The protocol of nvidia-fs that Culvert knows.
const (
	nvfsMajor = 2
	nvfsMinor = 28
)

// Properties are what cuFileDriverGetProperties tells. Limits on chunks, caches
// and pinned memory are NVIDIA's implementation's, and have no meaning here.
type Properties struct {
	// NVFS is the version of the nvidia-fs protocol that Culvert speaks, whether
	// the module is there or not: programs take 0.0 for "no GPUDirect Storage
	// here" and walk around the library. What is direct, Status says.
	NVFS [2]int `json:"nvfs_version"`
	// Status has a bit for each kind of storage that a route reaches directly on
	// this machine now.
	Status Target `json:"status"`
	// Features are what this version can do.
	Features Feature `json:"features"`
}

// A Target is a set of kinds of storage, by the bits of dstatusflags.
type Target uint32

// The kinds of storage that a route can be direct to.
const (
	TargetNVMe    Target = 1 << 4
	TargetNVMeP2P Target = 1 << 11
)

// A Feature is a set of features, by the bits of fflags.
type Feature uint32

// The features of this version.
const (
	FeatureBatch    Feature = 1 << 1
	FeatureParallel Feature = 1 << 3
)

// Properties describes the driver. On a closed one nothing is known to be
// direct.
func (d *Driver) Properties() Properties {
	p := Properties{NVFS: [2]int{nvfsMajor, nvfsMinor}, Features: FeatureBatch | FeatureParallel}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.gpus {
		for _, id := range g.ladder.Routes() {
			p.Status |= directTargets[id]
		}
	}
	return p
}

// directTargets are the kinds of storage that the direct routes stand for.
var directTargets = map[route.ID]Target{
	route.Vendor: TargetNVMe,
	route.NVFS:   TargetNVMe,
	route.NVMe:   TargetNVMe,
	route.P2PDMA: TargetNVMe | TargetNVMeP2P,
}
