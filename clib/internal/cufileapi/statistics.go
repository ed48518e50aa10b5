package cufileapi

import (
	"math/bits"
	"structs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// Statistics in the form of cuFileGetStatsL1 to L3. Culvert's own, with routes
// and host bytes, are kept always and are in culvert stats; these are kept when
// a program asks for them.

// counter is CUfileOpCounter_t.
type counter struct {
	_       structs.HostLayout
	OK, Err uint64
}

func (c *counter) add(err error) {
	if err != nil {
		c.Err++
	} else {
		c.OK++
	}
}

// flow is what level 1 has of one direction.
type flow struct {
	ops   counter
	bytes uint64
	took  time.Duration
	sizes [histogram]uint64
}

const histogram = 32

// statsLevel1 is CUfileStatsLevel1_t.
type statsLevel1 struct {
	_                                          structs.HostLayout
	ReadOps, WriteOps                          counter
	HdlRegisterOps, HdlDeregisterOps           counter
	BufRegisterOps, BufDeregisterOps           counter
	ReadBytes, WriteBytes                      uint64
	ReadBWBytesPerSec, WriteBWBytesPerSec      uint64
	ReadLatAvgUs, WriteLatAvgUs                uint64
	ReadOpsPerSec, WriteOpsPerSec              uint64
	ReadLatSumUs, WriteLatSumUs                uint64
	BatchSubmitOps, BatchCompleteOps           counter
	BatchSetupOps, BatchCancelOps              counter
	BatchDestroyOps, BatchEnqueuedOps          counter
	BatchPosixEnqueuedOps, BatchProcessedOps   counter
	BatchPosixProcessedOps, BatchNvfsSubmitOps counter
	BatchP2PSubmitOps, BatchAioSubmitOps       counter
	BatchIouringSubmitOps, BatchMixedSubmitOps counter
	BatchTotalSubmitOps                        counter
	Batch                                      [12]uint64 // bytes, rates and latencies of batches
}

// statsLevel2 is CUfileStatsLevel2_t.
type statsLevel2 struct {
	_                           structs.HostLayout
	Basic                       statsLevel1
	ReadSizeKBHist, WriteKBHist [histogram]uint64
}

// gpuFlow is what level 3 has of one GPU and direction. How often a request was
// unaligned, and dynamic routing, are NVIDIA's.
type gpuFlow struct {
	_                    structs.HostLayout
	Bytes, BWBytesPerSec uint64
	Utilization          uint64
	DurationUs           uint64
	Total                uint64
	P2P, NVFS, Posix     uint64
	Unaligned, DR        uint64
}

// gpuStats is CUfilePerGpuStats_t.
type gpuStats struct {
	_                               structs.HostLayout
	UUID                            [16]byte
	Reads                           gpuFlow
	SparseRegions, InlineRegions    uint64
	ReadsErr                        uint64
	Writes                          gpuFlow
	WritesErr                       uint64
	Mmap, MmapOK, MmapErr, MmapFree uint64
	RegBytes                        uint64
}

// statsLevel3 is CUfileStatsLevel3_t.
type statsLevel3 struct {
	_        structs.HostLayout
	Detailed statsLevel2
	NumGPUs  uint32
	Pad      uint32
	PerGPU   [maxGPUs]gpuStats
}

const maxGPUs = 16

const maxLevel = 3

// statistics are kept from StatsStart to StatsStop.
type statistics struct {
	on atomic.Bool // looked at by every call

	mu                    sync.Mutex
	level                 int32
	since                 time.Time
	flows                 [2]flow // by route.Dir
	handles, handlesEnded counter
	buffers, buffersEnded counter
	gpus                  [maxGPUs]gpuStats
}

// note counts a call that is no transfer.
func (s *statistics) note(which *counter, err error) {
	if !s.on.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	which.add(err)
}

// transfer counts a read or a write, where statistics are on.
func (s *statistics) transfer(a *API, r *route.Receipt, mem gpu.Addr, err error) {
	if !s.on.Load() { // transfers
		return
	}
	dev := a.gpuOf(mem)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.flows[r.Dir]
	f.ops.add(err)
	f.bytes += uint64(r.Bytes)
	f.took += r.Time
	f.sizes[bin(r.Bytes)]++
	if dev < 0 || dev >= maxGPUs {
		return
	}
	g := &s.gpus[dev]
	of, errs := &g.Reads, &g.ReadsErr
	if r.Dir == route.Write {
		of, errs = &g.Writes, &g.WritesErr
	}
	if err != nil {
		*errs++
	}
	of.Bytes += uint64(r.Bytes)
	of.DurationUs += uint64(r.Time.Microseconds())
	of.Total++
	switch r.Route {
	case route.P2PDMA:
		of.P2P++
	case route.NVFS:
		of.NVFS++
	default:
		of.Posix++
	}
}

// bin is where a size belongs: up to 4 KiB, up to 8, and so on.
func bin(n int64) int {
	const first = 12
	return min(max(bits.Len64(uint64(max(n-1, 0)))-first, 0), histogram-1)
}

// level1 is what has been counted. Call with s.mu held.
func (s *statistics) level1() statsLevel1 {
	r, w := &s.flows[route.Read], &s.flows[route.Write]
	seconds := uint64(max(time.Since(s.since)/time.Second, 1))
	return statsLevel1{
		ReadOps: r.ops, WriteOps: w.ops,
		HdlRegisterOps: s.handles, HdlDeregisterOps: s.handlesEnded,
		BufRegisterOps: s.buffers, BufDeregisterOps: s.buffersEnded,
		ReadBytes: r.bytes, WriteBytes: w.bytes,
		ReadBWBytesPerSec: r.rate(), WriteBWBytesPerSec: w.rate(),
		ReadLatAvgUs: r.average(), WriteLatAvgUs: w.average(),
		ReadOpsPerSec: r.ops.OK / seconds, WriteOpsPerSec: w.ops.OK / seconds,
		ReadLatSumUs: uint64(r.took.Microseconds()), WriteLatSumUs: uint64(w.took.Microseconds()),
	}
}

func (f *flow) rate() uint64 {
	if f.took <= 0 {
		return 0
	}
	return uint64(float64(f.bytes) / f.took.Seconds())
}

func (f *flow) average() uint64 {
	if f.ops.OK == 0 {
		return 0
	}
	return uint64(f.took.Microseconds()) / f.ops.OK
}

func (s *statistics) level2() statsLevel2 {
	return statsLevel2{Basic: s.level1(), ReadSizeKBHist: s.flows[route.Read].sizes, WriteKBHist: s.flows[route.Write].sizes}
}

// SetStatsLevel is cuFileSetStatsLevel.
func (a *API) SetStatsLevel(level int32) error {
	if level < 0 || level > maxLevel {
		return cufile.InvalidValue
	}
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	a.stats.level = level
	if level == 0 {
		a.stats.on.Store(false)
		a.leases.pause(false)
	}
	return nil
}

// GetStatsLevel is cuFileGetStatsLevel.
func (a *API) GetStatsLevel(out cmem.Ptr) error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	cmem.Store(out, a.stats.level)
	return nil
}

// running is for calls that want an open driver and statistics of a level.
func (a *API) running(level int32) error {
	if !a.isOpen() {
		return cufile.DriverNotInitialized
	}
	if a.stats.level < level {
		return &cufile.Error{Op: "statistics", Object: "driver", Code: cufile.InvalidValue, Fix: "cuFileSetStatsLevel first"}
	}
	return nil
}

// StatsStart is cuFileStatsStart.
func (a *API) StatsStart() error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	if err := a.running(1); err != nil {
		return err
	}
	if !a.stats.on.Swap(true) {
		a.stats.since = time.Now()
		a.leases.pause(true)
	}
	return nil
}

// StatsStop is cuFileStatsStop.
func (a *API) StatsStop() error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	if err := a.running(1); err != nil {
		return err
	}
	a.stats.on.Store(false)
	a.leases.pause(false)
	return nil
}

// StatsReset is cuFileStatsReset.
func (a *API) StatsReset() error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	if err := a.running(1); err != nil {
		return err
	}
	s := &a.stats
	s.flows, s.gpus, s.since = [2]flow{}, [maxGPUs]gpuStats{}, time.Now()
	s.handles, s.handlesEnded, s.buffers, s.buffersEnded = counter{}, counter{}, counter{}, counter{}
	return nil
}

// GetStatsL1 is cuFileGetStatsL1.
func (a *API) GetStatsL1(out cmem.Ptr) error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	if err := a.running(1); err != nil {
		return err
	}
	cmem.Store(out, a.stats.level1())
	return nil
}

// GetStatsL2 is cuFileGetStatsL2.
func (a *API) GetStatsL2(out cmem.Ptr) error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	if err := a.running(2); err != nil {
		return err
	}
	cmem.Store(out, a.stats.level2())
	return nil
}

// GetStatsL3 is cuFileGetStatsL3.
func (a *API) GetStatsL3(out cmem.Ptr) error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	if err := a.running(maxLevel); err != nil {
		return err
	}
	m, err := a.open()
	if err != nil {
		return &cufile.Error{Op: "open", Object: "machine", Code: cufile.CUDADriverError, Err: err}
	}
	infos, err := m.GPU.Devices()
	if err != nil {
		return &cufile.Error{Op: "list", Object: "GPUs", Code: cufile.CUDADriverError, Err: err}
	}
	all := statsLevel3{Detailed: a.stats.level2(), NumGPUs: uint32(min(len(infos), maxGPUs)), PerGPU: a.stats.gpus}
	for i := range all.NumGPUs {
		all.PerGPU[i].UUID = infos[i].UUID
	}
	cmem.Store(out, all)
	return nil
}

// gpuOf is the GPU of an address, for level 3; -1 for host memory.
func (a *API) gpuOf(at gpu.Addr) int {
	a.stats.mu.Lock()
	level := a.stats.level
	a.stats.mu.Unlock()
	drv := a.drv.Load()
	if level < maxLevel || drv == nil {
		return -1
	}
	dev, err := drv.Device(0)
	if err != nil {
		return -1
	}
	p, err := dev.Pointer(at)
	if err != nil || !p.Kind.OnDevice() {
		return -1
	}
	return p.Device
}
