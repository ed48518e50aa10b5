package ring

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/culvert-io/culvert/internal/storage"
)

// DefaultBudget is the default limit on a ring's pinned memory, in bytes.
const DefaultBudget = 256 << 20

// Config sizes a ring. Zero fields are chosen from the machine.
type Config struct {
	Budget  int64        // limit on pinned memory in bytes (default DefaultBudget)
	Slot    int          // bytes per slot, the largest chunk (default 4 MiB)
	Depth   int          // slots per pipeline (default 2)
	Workers int          // chunks processed at a time (default: from cores, link and measured rate)
	Poll    int64        // bytes of a request up to which its completions are polled for (default: what is faster)
	Logger  *slog.Logger // receives degradations as warnings and choices as debug messages (default: discarded)

	sys     syscalls // nil: the kernel
	noUring bool
}

const (
	// A chunk of 4 MiB keeps a PCIe 5 link busy for 75 us, long compared with the
	// launch of its copy, and exceeds a core's own cache: 2 MiB chunks lose 4 % on
	// such a link, 1 MiB chunks 11 %. See docs/performance.md.
	defaultSlot  = 4 << 20
	defaultDepth = 2
	minSlot      = 64 << 10
	// maxWorkers is the most threads that the ring starts. Callers use their own,
	// and find a pipeline while fewer than maxPipelines are in use.
	maxWorkers   = 16
	maxPipelines = 24
	// A worker that waits for a disk needs a pipeline but no core.
	minWorkers = 4
	// sourceWorkers is the least for a source, which is a store or another host: on two
	// cores, 4 requests in flight reach 0.87 of the rate of 16, and 8 reach 0.92.
	sourceWorkers = 8

	// smallLen is the size up to which a single request runs in its caller: one
	// core is done before others could be woken.
	smallLen       = storage.SmallLen
	smallSlotBytes = smallLen + 2*page
	maxSmallSlots  = 64
	// smallSlotsPerSlab is how many small slots are pinned at a time.
	smallSlotsPerSlab = 8

	// StageMax is the longest read for Stage.
	StageMax       = 512 << 10
	stageSlotBytes = StageMax + 2*page
	maxStageSlots  = 10
)

// startCores is GOMAXPROCS at the start of the process: a program may raise it
// above the number of cores, since most goroutines are in system calls.
var startCores = runtime.GOMAXPROCS(0)

// A sizing is a Config with all values chosen.
type sizing struct {
	budget     int64
	slot       int64
	depth      int
	pipelines  int
	workers    int // threads that the ring starts, at most
	smallSlots int
	stageSlots int
	link       int64 // bytes per second; 0: unknown, or the number of workers is given
	sources    int   // pipelines while a source is read
}

// slotBytes is what a slot pins: one page more than a chunk, so that a chunk that
// does not start on a page is not shortened.
func (s sizing) slotBytes() int64 { return s.slot + page }

// pipelineBytes is what a pipeline pins. Alignment may cost a page.
func (s sizing) pipelineBytes() int64 { return int64(s.depth)*s.slotBytes() + page }

// resolve chooses what the caller did not. link is the GPU's, in bytes per second.
func (c Config) resolve(link int64) (sizing, error) {
	s := sizing{budget: c.Budget, slot: int64(c.Slot), depth: c.Depth, pipelines: c.Workers, workers: c.Workers}
	if c.Budget < 0 || c.Slot < 0 || c.Depth < 0 || c.Workers < 0 {
		return s, fmt.Errorf("ring: budget %d, slot size %d, depth %d, workers %d: none may be negative", c.Budget, c.Slot, c.Depth, c.Workers)
	}
	if c.Slot != 0 && (c.Slot < minSlot || c.Slot%page != 0) {
		return s, fmt.Errorf("ring: slot size %d must be a multiple of %d, at least %d", c.Slot, page, minSlot)
	}
	s.budget = cmp.Or(s.budget, DefaultBudget)
	s.depth = cmp.Or(s.depth, defaultDepth)
	if c.Workers == 0 {
		n := max(startCores, minWorkers)
		s.pipelines, s.workers, s.link = min(n, maxPipelines), min(n, maxWorkers), link
	}
	if c.Slot == 0 {
		s.slot = defaultSlot
		for s.slot > minSlot && 2*s.pipelineBytes() > s.budget*3/4 {
			s.slot /= 2 // so that two pipelines fit
		}
	}
	room := s.budget - s.callerSlots()
	if s.pipelineBytes() > room {
		return s, fmt.Errorf("ring: %d slots of %d bytes and %d of %d bytes exceed the pinned-memory budget of %d bytes (fix: raise the budget or use smaller slots)",
			s.depth, s.slot, s.smallSlots, smallSlotBytes, s.budget)
	}
	s.pipelines = int(min(int64(s.pipelines), room/s.pipelineBytes()))
	s.sources = s.pipelines
	if c.Workers == 0 {
		s.sources = int(min(int64(max(s.pipelines, sourceWorkers)), room/s.pipelineBytes()))
	}
	return s, nil
}

// callerSlots chooses how many slots there are for what runs in its caller's goroutine,
// and returns what they pin: one eighth of the budget, for small requests first, which
// have one slot at least. A slab may cost a page.
func (s *sizing) callerSlots() int64 {
	share := s.budget / 8
	s.smallSlots = int(min(max(share/smallSlotBytes, 1), maxSmallSlots))
	small := int64(s.smallSlots) * smallSlotBytes
	s.stageSlots = int(min(max(share-small, 0)/stageSlotBytes, maxStageSlots))
	slabs := (s.smallSlots+smallSlotsPerSlab-1)/smallSlotsPerSlab + (s.stageSlots+smallSlotsPerSlab-1)/smallSlotsPerSlab
	return small + int64(s.stageSlots)*stageSlotBytes + page*int64(slabs)
}
