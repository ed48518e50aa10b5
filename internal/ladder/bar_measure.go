package ladder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/route"
)

const (
	// measureBytes are moved for each length, route and round: half a millisecond
	// on a fast machine, five on a slow one.
	measureBytes  = 16 << 20
	measureRounds = 3
)

// crossoverLens are the request lengths that are measured, in ascending order.
var crossoverLens = []uint64{256 << 10, 512 << 10, crossoverHigh}

// TuneBytes is how much of a source TuneBar reads, from its start.
const TuneBytes = crossoverHigh

// TuneBar measures the crossover between BAR1 and the ring for the file system of a
// source, and keeps it in the user's cache. The first TuneBytes of the source must be
// in the page cache.
func (l *Ladder) TuneBar(ctx context.Context, src Source) (Crossover, error) {
	p := l.Plan(src)
	both, alone := p.keep(route.Bar, route.Ring), p.keep(route.Ring)
	if len(both.routes) < 2 {
		return Crossover{}, errors.Join(p.missing(route.Bar), p.missing(route.Ring))
	}
	bar, f := both.routes[0].(*barRoute), src.File()
	if n, err := f.Resident(0, crossoverHigh); err != nil || n < crossoverHigh {
		return Crossover{}, fmt.Errorf("the first %d KiB of %s are not in the page cache (fix: read the file first)", crossoverHigh>>10, src.Name())
	}
	both.traits[0].Max = 0
	on := bar.crossoverSubject(f)
	m := measurement{ctx: ctx, src: src, callers: on.Callers}
	if err := m.alloc(bar); err != nil {
		return Crossover{}, err
	}
	defer m.free(bar)
	var rates []CrossoverRates
	for _, n := range crossoverLens {
		var withBar, ring []float64
		for range measureRounds {
			withBar = append(withBar, m.rate(both, n))
			ring = append(ring, m.rate(alone, n))
		}
		rates = append(rates, CrossoverRates{n, median(withBar), median(ring)})
	}
	if m.err != nil {
		return Crossover{}, m.err
	}
	c := newCrossover(on, rates)
	return c, tune.User().Store(WhatCrossover, on, c)
}

// keep is a plan with some of the routes, to be changed by the caller.
func (p *Plan) keep(ids ...route.ID) *Plan {
	q := *p
	q.routes, q.traits = nil, nil
	for i := range p.traits {
		if slices.Contains(ids, p.traits[i].ID) {
			q.routes, q.traits = append(q.routes, p.routes[i]), append(q.traits, p.traits[i])
		}
	}
	return &q
}

// missing says why a plan does not have a route; nil if it does.
func (p *Plan) missing(id route.ID) error {
	_, err := p.Only(id)
	return err
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// A measurement reads the start of a source into GPU memory of its own, with several
// callers at a time.
type measurement struct {
	ctx     context.Context
	src     Source
	callers int
	mem     gpu.Span

	mu  sync.Mutex
	err error // the first
}

func (m *measurement) alloc(bar *barRoute) error {
	size := uint64(m.callers) * crossoverHigh
	a, err := bar.dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return err
	}
	m.mem = gpu.Span{Dev: bar.dev.Info().Index, Base: a, Len: size}
	bar.Register(m.mem, gpu.KindDevice)
	if _, ok := bar.maps.get(a); !ok {
		m.free(bar)
		return fmt.Errorf("map %v through BAR1: not possible", m.mem)
	}
	return nil
}

func (m *measurement) free(bar *barRoute) {
	bar.Deregister(m.mem)
	_ = bar.dev.Free(m.mem.Base)
}

// rate is how many bytes per second a plan reads in requests of n bytes.
func (m *measurement) rate(p *Plan, n uint64) float64 {
	each := max(measureBytes/n/uint64(m.callers), 1)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range m.callers {
		wg.Go(func() {
			if err := m.read(p, m.mem.Slice(uint64(i)*crossoverHigh, n), each); err != nil {
				m.mu.Lock()
				defer m.mu.Unlock()
				if m.err == nil {
					m.err = err
				}
			}
		})
	}
	wg.Wait()
	return float64(each*uint64(m.callers)*n) / time.Since(start).Seconds()
}

func (m *measurement) read(p *Plan, mem gpu.Span, times uint64) error {
	ops, res := make([]Op, 1), make([]route.Receipt, 1)
	for k := range times {
		ops[0] = Op{Dir: route.Read, Src: m.src, Off: int64(k * mem.Len % crossoverHigh), Mem: mem, Kind: gpu.KindDevice, Buf: allocated{}}
		res[0] = route.Receipt{}
		if err := p.Run(m.ctx, ops, res); err != nil {
			return err
		}
	}
	return nil
}

// allocated is a registration of memory that the measurement itself owns.
type allocated struct{}

func (allocated) CheckAllocated(gpu.Span) error                      { return nil }
func (allocated) CheckAllocatedCached(gpu.Span, time.Duration) error { return nil }
