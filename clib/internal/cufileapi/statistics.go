package cufileapi

import (
	"math/bits"
	"structs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/logfile"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// Statistics in the form of cuFileGetStatsL1 to L3, kept if the program asks for
// them. Culvert's own, with routes and host bytes, are always kept: culvert stats
// prints them.

const (
	maxLevel  = 3
	maxGPUs   = 16
	histogram = 32
)

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

// statsLevel1 is CUfileStatsLevel1_t. Pairs are indexed by route.Dir.
type statsLevel1 struct {
	_                                structs.HostLayout
	Ops                              [2]counter
	HdlRegisterOps, HdlDeregisterOps counter
	BufRegisterOps, BufDeregisterOps counter
	Bytes, BytesPerSec, LatAvgUs     [2]uint64
	OpsPerSec, LatSumUs              [2]uint64
	BatchOps                         [15]counter // not counted
	Batch                            [12]uint64  // not counted
}

// statsLevel2 is CUfileStatsLevel2_t.
type statsLevel2 struct {
	_     structs.HostLayout
	Basic statsLevel1
	Sizes [2][histogram]uint64 // by route.Dir
}

// gpuFlow is one direction of a GPU. NVIDIA's counts of unaligned requests and
// of dynamic routing stay 0.
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

// statistics are kept from StatsStart to StatsStop.
type statistics struct {
	on atomic.Bool // every call reads it

	mu     sync.Mutex
	level  int32
	chosen bool // by a call, which wins over the configuration
	since  time.Time
	total  statsLevel2 // without rates and latencies
	took   [2]time.Duration
	gpus   [maxGPUs]gpuStats
}

// count runs fn if statistics are on.
func (s *statistics) count(fn func()) {
	if !s.on.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// note counts a call that is no transfer.
func (s *statistics) note(which *counter, err error) { s.count(func() { which.add(err) }) }

// transferred counts a read or a write of memory at mem.
func (a *API) transferred(r *route.Receipt, mem gpu.Addr, err error) {
	a.stats.count(func() { a.stats.transfer(r, a.gpuOf(mem), err) })
	if err == nil && a.Journal.Logs(logfile.Debug) {
		a.Journal.Write(logfile.Debug, "transfer", "%v", r)
	}
}

func (s *statistics) transfer(r *route.Receipt, dev int, err error) {
	s.total.Basic.Ops[r.Dir].add(err)
	s.total.Basic.Bytes[r.Dir] += uint64(r.Bytes)
	s.total.Sizes[r.Dir][bin(r.Bytes)]++
	s.took[r.Dir] += r.Time
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

// bin is the place of a size in the histogram: up to 4 KiB, up to 8 KiB, and so
// on.
func bin(n int64) int {
	const first = 12
	return min(max(bits.Len64(uint64(max(n-1, 0)))-first, 0), histogram-1)
}

// detailed is the totals with rates and latencies. Call with s.mu held.
func (s *statistics) detailed() statsLevel2 {
	all := s.total
	b := &all.Basic
	seconds := uint64(max(time.Since(s.since)/time.Second, 1))
	for dir, took := range s.took {
		ok := b.Ops[dir].OK
		b.OpsPerSec[dir] = ok / seconds
		b.LatSumUs[dir] = uint64(took.Microseconds())
		b.LatAvgUs[dir] = b.LatSumUs[dir] / max(ok, 1)
		if took > 0 {
			b.BytesPerSec[dir] = uint64(float64(b.Bytes[dir]) / took.Seconds())
		}
	}
	return all
}

// configure sets the level of the configuration.
func (s *statistics) configure(level int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.chosen && level <= maxLevel {
		s.level = level
	}
}

// SetStatsLevel is cuFileSetStatsLevel.
func (a *API) SetStatsLevel(level int32) error {
	if level < 0 || level > maxLevel {
		return cufile.InvalidValue
	}
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	a.stats.level, a.stats.chosen = level, true
	if level == 0 {
		a.switchStats(false)
	}
	return nil
}

// GetStatsLevel is cuFileGetStatsLevel.
func (a *API) GetStatsLevel(out cmem.Ptr) error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	return cmem.Answer(out, a.stats.level)
}

// withStats runs fn with stats.mu held, if the driver is open and statistics
// have the level.
func (a *API) withStats(level int32, fn func(*statistics) error) error {
	a.stats.mu.Lock()
	defer a.stats.mu.Unlock()
	switch {
	case !a.isOpen():
		return cufile.DriverNotInitialized
	case a.stats.level < level:
		return &cufile.Error{Op: "statistics", Object: "driver", Code: cufile.InvalidValue, Fix: "call cuFileSetStatsLevel first"}
	}
	return fn(&a.stats)
}

// switchStats starts or stops counting.
func (a *API) switchStats(on bool) {
	a.stats.on.Store(on)
	a.pauseLeases()
}

// pauseLeases stops C from reading by leases while reads are counted or logged.
func (a *API) pauseLeases() {
	a.leases.Pause(a.stats.on.Load() || a.Journal.Logs(logfile.Debug))
}

// StatsStart is cuFileStatsStart.
func (a *API) StatsStart() error {
	return a.withStats(1, func(s *statistics) error {
		if s.on.Load() {
			return nil
		}
		s.since = time.Now()
		a.switchStats(true)
		return nil
	})
}

// StatsStop is cuFileStatsStop.
func (a *API) StatsStop() error {
	return a.withStats(1, func(*statistics) error {
		a.switchStats(false)
		return nil
	})
}

// StatsReset is cuFileStatsReset.
func (a *API) StatsReset() error {
	return a.withStats(1, func(s *statistics) error {
		s.total, s.took, s.gpus, s.since = statsLevel2{}, [2]time.Duration{}, [maxGPUs]gpuStats{}, time.Now()
		return nil
	})
}

// GetStatsL1 is cuFileGetStatsL1.
func (a *API) GetStatsL1(out cmem.Ptr) error {
	return a.withStats(1, func(s *statistics) error { return cmem.Answer(out, s.detailed().Basic) })
}

// GetStatsL2 is cuFileGetStatsL2.
func (a *API) GetStatsL2(out cmem.Ptr) error {
	return a.withStats(2, func(s *statistics) error { return cmem.Answer(out, s.detailed()) })
}

// GetStatsL3 is cuFileGetStatsL3.
func (a *API) GetStatsL3(out cmem.Ptr) error {
	return a.withStats(maxLevel, func(s *statistics) error {
		_, infos, err := a.gpus()
		if err != nil {
			return err
		}
		all := statsLevel3{Detailed: s.detailed(), NumGPUs: uint32(min(len(infos), maxGPUs)), PerGPU: s.gpus}
		for i := range all.NumGPUs {
			all.PerGPU[i].UUID = infos[i].UUID
		}
		return cmem.Answer(out, all)
	})
}

// gpuOf is the GPU of an address, for level 3; -1 for host memory. Call with
// stats.mu held.
func (a *API) gpuOf(at gpu.Addr) int {
	if a.stats.level < maxLevel {
		return -1
	}
	dev, err := a.drv.Load().Device(0)
	if err != nil {
		return -1
	}
	p, err := dev.Pointer(at)
	if err != nil || !p.Kind.OnDevice() {
		return -1
	}
	return p.Device
}
