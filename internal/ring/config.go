package ring

import (
	"fmt"
	"log/slog"
	"runtime"

	"github.com/culvert-io/culvert/gpu"
)

// DefaultBudget is the limit on pinned memory of a ring.
const DefaultBudget = 256 << 20

// Config sizes a ring. The zero value is chosen from the machine.
type Config struct {
	Budget  int64 // limit on pinned memory in bytes; 0 is DefaultBudget
	Slot    int   // bytes of a slot, and so of the largest piece; 0 is 4 MiB
	Depth   int   // slots of a lane; 0 is 2
	Workers int   // pieces read or written at a time; 0 follows cores, link and what is measured
	Logger  *slog.Logger

	files syscalls // nil is the kernel
	plain bool     // no io_uring
}

const (
	// A piece of 4 MiB keeps a PCIe 5 link busy for 75 us, beside which the
	// launch of its copy is small, and is too large to stay in a core's own
	// cache: on such a link 2 MiB lose 4 %, 1 MiB 11 %. See docs/performance.md.
	defaultSlot  = 4 << 20
	defaultDepth = 2
	minSlot      = 64 << 10
	// maxWorkers is how many threads are ever called in; callers bring their own,
	// and find a lane while there are less than maxLanes at work.
	maxWorkers   = 16
	maxPipelines = 24
	// Waiting for a disk takes lanes but no cores.
	minWorkers = 4

	// smallLen is the size up to which a request runs in its caller: below it
	// one core needs less time than it takes to call others in.
	smallLen = 128 << 10
	// smallSlot has room for an offset inside a page, and a flag in a page behind.
	smallSlotBytes = smallLen + 2*page
	// hintMin and hintMax are the smallest and the largest piece that is pushed out
	// of a core's own cache, and hintQueue how many of its size must be on their way
	// for that.
	demoteMin     = 32 << 10
	demoteMax     = 1 << 20
	demoteQueue   = 2
	maxSmallSlots = 64
	// smallSlab is how many small slots are pinned at a time.
	smallSlotsPerSlab = 8
)

// cores is how many there were when the process began: a program may let more
// goroutines run than it has cores, since most of them are in calls.
var startCores = runtime.GOMAXPROCS(0)

// A plan is a Config with everything decided.
type sizing struct {
	budget     int64
	slot       int64
	depth      int
	pipelines  int
	workers    int // threads that are called in, at most
	smallSlots int
	link       int64 // bytes per second; 0 where it is not known or does not matter
}

// room is what a slot pins: a piece that does not begin on a page must not be cut
// for that.
func (p sizing) slotBytes() int64 { return p.slot + page }

// laneBytes is what a lane pins. Alignment may cost a page.
func (p sizing) pipelineBytes() int64 { return int64(p.depth)*p.slotBytes() + page }

func (c Config) resolve(info gpu.Info, m topology) (sizing, error) {
	p := sizing{budget: c.Budget, slot: int64(c.Slot), depth: c.Depth, pipelines: c.Workers, workers: c.Workers}
	if c.Budget < 0 || c.Slot < 0 || c.Depth < 0 || c.Workers < 0 {
		return p, fmt.Errorf("ring: negative size in %+v", p)
	}
	if c.Slot != 0 && (c.Slot < minSlot || c.Slot%page != 0) {
		return p, fmt.Errorf("ring: slot of %d bytes: want a multiple of %d from %d on", c.Slot, page, minSlot)
	}
	if p.budget == 0 {
		p.budget = DefaultBudget
	}
	if c.Workers == 0 {
		n := max(startCores, minWorkers)
		p.pipelines, p.workers, p.link = min(n, maxPipelines), min(n, maxWorkers), m.link(info.PCI)
	}
	p.fit(c)
	// An eighth is for small requests, but at least one slot.
	p.smallSlots = int(min(max(p.budget/8/smallSlotBytes, 1), maxSmallSlots))
	room := p.budget - int64(p.smallSlots)*smallSlotBytes - page*int64((p.smallSlots+smallSlotsPerSlab-1)/smallSlotsPerSlab)
	if p.pipelineBytes() > room {
		return p, fmt.Errorf("ring: pinned memory is limited to %d bytes: %d slots of %d bytes and %d of %d do not fit (raise the budget or make slots smaller)",
			p.budget, p.depth, p.slot, p.smallSlots, smallSlotBytes)
	}
	p.pipelines = int(min(int64(p.pipelines), room/p.pipelineBytes()))
	return p, nil
}

// fit chooses slot and depth where the caller did not, smaller ones where the
// budget would not hold two lanes.
func (p *sizing) fit(c Config) {
	if c.Slot == 0 {
		p.slot = defaultSlot
	}
	if c.Depth == 0 {
		p.depth = defaultDepth
	}
	tight := func() bool { return 2*p.pipelineBytes() > p.budget*3/4 }
	for c.Depth == 0 && p.depth > 2 && tight() {
		p.depth--
	}
	for c.Slot == 0 && p.slot > minSlot && tight() {
		p.slot /= 2
	}
}
