package ring

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/tune"
)

const (
	// firstRate is what a core reads from the page cache, in bytes per second, until
	// something is measured.
	firstRate = 5_000_000_000
	// rateLen is the size from which a chunk counts for a rate.
	rateLen = 1 << 20
	// linkShare is the fraction of its nominal rate that a PCIe link carries.
	linkShare = 0.88
)

// seed makes the first observations of a rate count as little as later ones: memory
// that is used for the first time is slow.
func seed(r *tune.Rate) { r.Add(firstRate, time.Second) }

// workerTargetLocked is how many threads to use: as many as fill the link at the
// rate at which they read. More would wait for each other's copies and for memory,
// and burn CPU time. Callers with a pipeline count, but are never turned away.
func (sc *scheduler) workerTargetLocked() int {
	if sc.awaitsSourceLocked() {
		return min(sc.limit, max(sc.sizing.workers, sourceWorkers))
	}
	most := min(sc.mostLocked(), sc.sizing.workers)
	if sc.sizing.link == 0 {
		return most
	}
	// One more, so that there is always one that does not wait.
	fill := int(linkShare*float64(sc.sizing.link)/sc.readRate.Get(firstRate)) + 2
	return min(max(fill, minWorkers), most)
}

// awaitsSourceLocked reports whether a source is read. Threads that wait for a network
// burn no CPU time, and only requests in flight make a store fast.
func (sc *scheduler) awaitsSourceLocked() bool {
	for _, b := range sc.active {
		if b.next < len(b.reqs) && b.reqs[b.next].Source != nil {
			return true
		}
	}
	return false
}

// mostLocked is the limit of pipelines. Those that were made for a source stay.
func (sc *scheduler) mostLocked() int {
	if sc.awaitsSourceLocked() {
		return sc.limit
	}
	return min(sc.limit, max(sc.sizing.pipelines, sc.pipelines))
}

// spareWorkersLocked is how many more threads would be useful.
func (sc *scheduler) spareWorkersLocked() int {
	used := sc.pipelines - len(sc.free)
	return min(max(sc.workerTargetLocked()-used, 0), sc.unusedLocked())
}

// unusedLocked is how many pipelines are not in use, made or not.
func (sc *scheduler) unusedLocked() int { return len(sc.free) + sc.mostLocked() - sc.pipelines }

// File systems admit one buffered write per file at a time: while one thread writes,
// two copy from the GPU, and more would only spin. Stores into mapped pages take no
// such lock, but eight threads saturate the memory.
const (
	pwriteWorkers = 3
	storeWorkers  = 8
)

// extraWorkersLocked is how many workers to wake for a batch that starts.
func (sc *scheduler) extraWorkersLocked(b *batch) int {
	n := int(min((b.left-1)/sc.chunkSizeLocked(b), int64(sc.spareWorkersLocked())))
	switch q := &b.reqs[b.next]; {
	case !q.Write || q.Direct >= 0:
		return n
	case b.prog[b.next].mapped.mem != nil:
		return min(n, storeWorkers-1)
	case len(sc.active) > 1: // perhaps on the same file
		return 0
	}
	return min(n, pwriteWorkers-1)
}

// wakeLocked wakes n workers, or starts them.
func (sc *scheduler) wakeLocked(n int) {
	for ; n > 0; n-- {
		switch {
		case sc.asleep > sc.woken:
			sc.woken++
			sc.wake.Signal()
		case sc.workers < sc.mostLocked():
			sc.workers++
			sc.group.Go(sc.work)
		default:
			return
		}
	}
}

// neededLocked reports whether a worker should take a pipeline.
func (sc *scheduler) neededLocked() bool {
	if len(sc.active) == 0 {
		return false
	}
	return sc.spareWorkersLocked() > 0 || sc.unusedLocked() > 0 && sc.callerWaitsLocked()
}

// callerWaitsLocked reports whether there is a batch whose caller found no pipeline.
func (sc *scheduler) callerWaitsLocked() bool {
	for _, b := range sc.active {
		if !b.hasCaller {
			return true
		}
	}
	return false
}

// work is a worker: a goroutine with a thread of its own, on which the GPU's context
// is current.
func (sc *scheduler) work() {
	unbind, err := sc.dev.Bind()
	if err != nil {
		sc.log.Warn("ring: bind a worker's thread to the GPU", "error", err)
	} else {
		defer unbind()
	}
	if sc.near != nil {
		// The thread must not be used for anything else afterwards: it ends with
		// the goroutine, which is locked once more than it is unlocked.
		runtime.LockOSThread()
		if err := unix.SchedSetaffinity(0, sc.near); err != nil {
			sc.log.Debug("ring: keep a worker on the CPUs near the GPU", "error", err)
		}
	}
	sc.mu.Lock()
	target := sc.workerTargetLocked()
	sc.mu.Unlock()
	sc.log.Debug("ring: start a worker", "target", target, "bytes_per_second", int64(sc.readRate.Get(firstRate)))
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for {
		for !sc.stopped && !sc.neededLocked() {
			sc.asleep++
			sc.wake.Wait()
			sc.asleep--
			sc.woken = max(sc.woken-1, 0)
		}
		if sc.stopped {
			return
		}
		p := sc.acquireLocked()
		sc.mu.Unlock()
		if p = sc.ready(p); p != nil {
			sc.drive(p, nil)
		}
		sc.mu.Lock()
		if p != nil {
			sc.releaseLocked(p)
		}
	}
}
