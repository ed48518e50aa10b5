package tune

import (
	"io/fs"
	"math"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// A PinnedRate is how many bytes per second one large copy of pinned host memory
// moves to a GPU (0) and from it (1). No route through host memory is faster.
type PinnedRate [2]atomic.Uint64 // bits of a float64; 0 if not measured

// WhatPinned is the kind of pinned-copy rates in the cache.
const WhatPinned = "pinned-rate"

type pinnedResult struct {
	ToGPU   float64 `json:"to_gpu_bytes_per_second,omitempty"`
	FromGPU float64 `json:"from_gpu_bytes_per_second,omitempty"`
}

// Get is the rate of a direction; 0 if it was not measured.
func (p *PinnedRate) Get(fromGPU bool) float64 {
	if p == nil {
		return 0
	}
	return math.Float64frombits(p[index(fromGPU)].Load())
}

func index(fromGPU bool) int {
	if fromGPU {
		return 1
	}
	return 0
}

// Pinned is the pinned-copy rate of a GPU. It may become known later, when another
// part of the process measures it.
func Pinned(info gpu.Info, root fs.FS) *PinnedRate { return pinnedRates.of(Link(info, root), User()) }

// StorePinned keeps a measured rate for this process and for later ones.
func StorePinned(info gpu.Info, root fs.FS, fromGPU bool, bytesPerSecond float64) error {
	if !(bytesPerSecond > 0) || math.IsInf(bytesPerSecond, 0) {
		return nil
	}
	link, cache := Link(info, root), User()
	p := pinnedRates.of(link, cache)
	p[index(fromGPU)].Store(math.Float64bits(bytesPerSecond))
	return cache.Store(WhatPinned, link, pinnedResult{p.Get(false), p.Get(true)})
}

// pinnedTable holds one PinnedRate per link, shared by all ladders of a process.
type pinnedTable struct {
	mu    sync.Mutex
	rates map[Subject]*PinnedRate
}

var pinnedRates pinnedTable

func (t *pinnedTable) of(link Subject, cache *Cache) *PinnedRate {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.rates[link]; p != nil {
		return p
	}
	if t.rates == nil {
		t.rates = map[Subject]*PinnedRate{}
	}
	p := new(PinnedRate)
	var known pinnedResult
	if cache.Load(WhatPinned, link, &known) {
		p[0].Store(math.Float64bits(max(known.ToGPU, 0)))
		p[1].Store(math.Float64bits(max(known.FromGPU, 0)))
	}
	t.rates[link] = p
	return p
}
