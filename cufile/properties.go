package cufile

import "github.com/culvert-io/culvert/route"

// Version is the cuFile release whose API this is, as reported by cuFileGetVersion:
// 1150 is 1.15.
const Version = 1150

// The nvidia-fs protocol that Culvert implements.
const (
	nvfsMajor = 2
	nvfsMinor = 28
)

// Properties are what cuFileDriverGetProperties reports. Limits on chunks, caches and
// pinned memory belong to NVIDIA's implementation and have no meaning here.
type Properties struct {
	// NVFS is the version of the nvidia-fs protocol that Culvert implements, with or
	// without the module: programs take 0.0 for "no GPUDirect Storage here" and bypass
	// the library. Status says what is direct.
	NVFS [2]int `json:"nvfs_version"`
	// Status has a bit of dstatusflags for each kind of storage that a route reaches
	// directly on this machine now.
	Status uint32 `json:"status"`
	// Features has the bits of fflags: batches, streams and parallel I/O.
	Features uint32 `json:"features"`
	// BatchSize is the most requests that a batch holds.
	BatchSize int `json:"batch_size"`
}

const (
	statusNVMe    = 1 << 4
	statusNVMeP2P = 1 << 11

	featureBatch    = 1 << 1
	featureStreams  = 1 << 2
	featureParallel = 1 << 3
)

// Properties describes the driver. Status is 0 on a closed driver.
func (d *Driver) Properties() Properties {
	p := Properties{NVFS: [2]int{nvfsMajor, nvfsMinor}, Features: featureBatch | featureStreams | featureParallel}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.BatchSize = d.config.batchSize()
	for _, g := range d.gpus {
		for id, bits := range directStatus {
			if g.ladder.Has(id) {
				p.Status |= bits
			}
		}
	}
	return p
}

// directStatus are the status bits of the direct routes.
var directStatus = map[route.ID]uint32{
	route.Vendor: statusNVMe,
	route.NVFS:   statusNVMe,
	route.P2PDMA: statusNVMe | statusNVMeP2P,
}
