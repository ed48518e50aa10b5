package ladder

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/route"
)

// Reads up to crossoverLow are faster through BAR1 and reads above crossoverHigh by
// the ring, on every machine tested. Between the two it depends on the GPU, its
// link, the CPU and the file system.
const (
	crossoverLow     = 128 << 10
	crossoverHigh    = 1 << 20
	crossoverDefault = 256 << 10
)

// knownCrossovers are crossovers measured on GPUs, by name. On an H200, six
// reads of 1 MiB through BAR1 with the ring beside them reach 37 to 40 GB/s, and the
// ring alone 25 to 34.
var knownCrossovers = map[string]uint64{"NVIDIA H200": crossoverHigh}

// WhatCrossover is the kind of crossovers in the cache of package tune.
const WhatCrossover = "bar-crossover"

// A Crossover is the request length from which the ring is faster than BAR1.
type Crossover struct {
	Max   uint64           `json:"max_bytes"` // the largest read that goes through BAR1
	Rates []CrossoverRates `json:"rates,omitempty"`
	on    tune.Subject
	// learned: up to Max, a barLearner decides
	learned bool
}

// CrossoverRates are bytes per second for requests of one length.
type CrossoverRates struct {
	Len  uint64  `json:"bytes"`
	Bar  float64 `json:"bar"` // with the ring beside it
	Ring float64 `json:"ring"`
}

// newCrossover takes BAR1 up to the first length at which the ring is faster.
func newCrossover(on tune.Subject, rates []CrossoverRates) Crossover {
	c := Crossover{Max: crossoverLow, Rates: rates, on: on}
	for _, r := range rates {
		if r.Bar < r.Ring {
			break
		}
		c.Max = r.Len
	}
	return c
}

// source says where the crossover comes from.
func (c *Crossover) source() string {
	switch {
	case len(c.Rates) > 0:
		return "measured by culvert tune"
	case c.learned:
		return "learned from reads"
	}
	return "built-in limit"
}

// decline is the answer to larger requests.
func (c *Crossover) decline() *route.Decline {
	text := fmt.Sprintf("the request is larger than %d KiB", c.Max>>10)
	for _, r := range c.Rates {
		if r.Bar < r.Ring {
			text += fmt.Sprintf("; measured on %s with %d callers: at %d KiB ring moves %s, bar %s",
				c.on.FS, c.on.Callers, r.Len>>10, human.Rate(r.Ring), human.Rate(r.Bar))
			break
		}
	}
	return decline(route.Bar, "size", text, "")
}

// crossoverSubject is what a crossover applies to.
func (b *barRoute) crossoverSubject(f *storage.File) tune.Subject {
	s := b.link
	s.FS, s.Dev, s.Callers = f.Facts.FS, f.Facts.Dev, crossoverCallers()
	return s
}

// maxCallers is enough to fill any link.
const maxCallers = 8

// crossoverCallers does not depend on GOMAXPROCS, which the command raises.
func crossoverCallers() int { return min(runtime.NumCPU(), maxCallers) }

// crossover is what "culvert tune" has measured for the file system of a file, or
// the built-in value of the GPU.
func (b *barRoute) crossover(f *storage.File) Crossover {
	on := b.crossoverSubject(f)
	var c Crossover
	if tune.User().Load(WhatCrossover, on, &c) && c.Max >= crossoverLow && c.Max <= crossoverHigh {
		c.on = on
		return c
	}
	if b.learn != nil {
		return Crossover{Max: crossoverHigh, learned: true}
	}
	return Crossover{Max: builtInCrossover(b.dev.Info())}
}

// unknownCrossover reports a GPU that was never measured. What is fast on the software
// machine says nothing about others, and nothing is learned there.
func unknownCrossover(info gpu.Info) bool {
	_, known := knownCrossovers[info.Name]
	return !known && !strings.HasSuffix(info.Name, "(software)")
}

func builtInCrossover(info gpu.Info) uint64 {
	if n, ok := knownCrossovers[info.Name]; ok {
		return n
	}
	return crossoverDefault
}
