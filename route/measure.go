package route

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
)

const (
	// measureBytes are moved for each size, route and round: half a millisecond
	// on a fast machine, five on a slow one.
	measureBytes  = 16 << 20
	measureRounds = 3
	// maxCallers is enough to fill any link.
	maxCallers = 8
)

func callers() int { return min(runtime.GOMAXPROCS(0), maxCallers) }

// upTo is the route with the border between it and another for a file's file
// system, which all of its files share.
func (b *BarRoute) upTo(other Route, f *storage.File) Route {
	b.mu.Lock()
	defer b.mu.Unlock()
	on := f.Facts.FS + " " + f.Facts.Dev
	border := b.borders[on]
	if border == nil {
		border = &borderFinder{find: func(op *Op) *Border { return b.findBorder(other, op.File) }}
		b.borders[on] = border
	}
	return &barUpTo{b, other, border}
}

// findBorder looks the border for a file up, or measures it.
func (b *BarRoute) findBorder(other Route, f *storage.File) *Border {
	id := identify(b.dev.Info(), b.root, f, callers())
	return borders.get(id, func() *Border { return b.measure(other, f, id) })
}

// measure reads a warm part of the file into memory of its own by both routes,
// in turns. It returns nil where it cannot: the file is too small or not in the
// page cache, or there is no memory.
func (b *BarRoute) measure(other Route, f *storage.File, id Identity) *Border {
	const area = borderHigh
	if n, err := f.Resident(0, area); err != nil || n < area {
		return nil
	}
	size := uint64(id.Callers) * area
	a, err := b.dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return nil
	}
	defer b.dev.Free(a)
	mem := gpu.Span{Dev: b.dev.Info().Index, Base: a, Len: size}
	b.Register(mem, gpu.KindDevice)
	if (*b.wins.Load())[a] == nil {
		return nil
	}
	defer b.Deregister(mem)
	mixed := &barUpTo{BarRoute: b, other: other}
	var speeds []BorderSpeeds
	for _, n := range borderSizes {
		s := BorderSpeeds{Size: n}
		var bar, ring []float64
		for range measureRounds {
			bar = append(bar, speed(mixed, f, mem, n, id.Callers))
			ring = append(ring, speed(other, f, mem, n, id.Callers))
		}
		slices.Sort(bar)
		slices.Sort(ring)
		s.Bar, s.Ring = bar[len(bar)/2], ring[len(ring)/2]
		speeds = append(speeds, s)
	}
	return newBorder(id, speeds)
}

// speed is how many bytes per second a route moves in requests of n bytes from so
// many callers, each into a part of mem; 0 when it fails.
func speed(r Route, f *storage.File, mem gpu.Span, n uint64, callers int) float64 {
	part := mem.Len / uint64(callers)
	each := max(measureBytes/n/uint64(callers), 1)
	failed := make([]error, callers)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			ops := []Op{{Dir: Read, File: f, Mem: mem.Slice(uint64(i)*part, n), Kind: gpu.KindDevice}}
			res := make([]Receipt, 1)
			for k := uint64(0); k < each && failed[i] == nil; k++ {
				ops[0].Off = int64(k * n % borderHigh)
				res[0] = Receipt{}
				failed[i] = r.Run(context.Background(), ops, res)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for _, err := range failed {
		if err != nil {
			return 0
		}
	}
	return float64(each*uint64(callers)*n) / took.Seconds()
}
