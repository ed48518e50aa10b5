package ladder

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/route"
)

func TestCrossoverFollowsTheRates(t *testing.T) {
	on := tune.Subject{FS: "ext4", Callers: 8}
	for name, c := range map[string]struct {
		rates []CrossoverRates
		max   uint64
		says  string
	}{
		"the ring wins early":  {[]CrossoverRates{{256 << 10, 20e9, 30e9}, {512 << 10, 20e9, 40e9}}, crossoverLow, "larger than 128 KiB; measured on ext4 with 8 callers: at 256 KiB ring moves 30GB/s, bar 20GB/s"},
		"the ring wins late":   {[]CrossoverRates{{256 << 10, 33e9, 30e9}, {512 << 10, 33e9, 42e9}}, 256 << 10, "at 512 KiB ring moves 42GB/s, bar 33GB/s"},
		"bar wins":             {[]CrossoverRates{{256 << 10, 33e9, 30e9}, {512 << 10, 33e9, 31e9}, {1 << 20, 3, 2}}, crossoverHigh, "larger than 1024 KiB"},
		"noise after the ring": {[]CrossoverRates{{256 << 10, 20e9, 30e9}, {512 << 10, 50e9, 40e9}}, crossoverLow, "at 256 KiB"},
	} {
		got := newCrossover(on, c.rates)
		if got.Max != c.max || !strings.Contains(got.decline().Evidence, c.says) {
			t.Errorf("%s: crossover %d, %q; want %d, %q", name, got.Max, got.decline().Evidence, c.max, c.says)
		}
	}
}

func TestBuiltInCrossover(t *testing.T) {
	for name, want := range map[string]uint64{"NVIDIA H200": 1 << 20, "NVIDIA H200 (software)": 256 << 10, "NVIDIA L4": 256 << 10, "": 256 << 10} {
		if got := builtInCrossover(gpu.Info{Name: name}); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

// userCache makes the cache of the user an empty one.
func userCache(t *testing.T) *tune.Cache {
	t.Helper()
	c, old := tune.NewCache(filepath.Join(t.TempDir(), "tune.json")), tune.User
	tune.User = func() *tune.Cache { return c }
	t.Cleanup(func() { tune.User = old })
	return c
}

// TestNothingIsMeasuredByTransfers checks that a transfer at the crossover neither
// measures nor stores anything, and that a stored crossover is used.
func TestNothingIsMeasuredByTransfers(t *testing.T) {
	t.Setenv(nvfsSwitch, "0") // it is better than both
	cache := userCache(t)
	w := newFixture(t)
	for _, n := range []uint64{4096, 300 << 10, 1 << 20} {
		w.run(t, w.ladder.Plan(w.src), n)
	}
	if e, err := cache.Entries(); len(e) != 0 || err != nil {
		t.Errorf("transfers stored %v", e)
	}
	bar := w.ladder.Plan(w.src).keep(route.Bar).routes[0].(*barRoute)
	for max, want := range map[uint64]route.ID{128 << 10: route.Ring, 512 << 10: route.Bar, 1: route.Bar, 1 << 40: route.Bar} {
		if err := cache.Store(WhatCrossover, bar.crossoverSubject(w.src.File()), Crossover{Max: max}); err != nil {
			t.Fatal(err)
		}
		// Impossible values count as unknown: the built-in crossover applies.
		if r := w.run(t, w.ladder.Plan(w.src), 200<<10); r.Route != want {
			t.Errorf("crossover %d: 200 KiB went by %v, want %v", max, r.Route, want)
		}
	}
}

// TestTuneBar runs the measurement on the software machine: it ends, leaves nothing
// behind, and stores its result.
func TestTuneBar(t *testing.T) {
	t.Setenv(nvfsSwitch, "0")
	cache := userCache(t)
	w := newFixture(t)
	if n, err := w.src.File().Resident(0, crossoverHigh); err != nil || n < crossoverHigh {
		t.Skipf("needs cachestat and a warm file: %d, %v", n, err)
	}
	free, _, err := w.device.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.ladder.TuneBar(context.Background(), w.src)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Rates) != 3 || c.Rates[0].Bar == 0 || c.Rates[1].Ring == 0 || c.Max < crossoverLow || c.Max > crossoverHigh {
		t.Errorf("%+v", c)
	}
	if e, err := cache.Entries(); err != nil || len(e) != 1 || e[0].What != WhatCrossover {
		t.Errorf("stored %v", e)
	}
	if after, _, err := w.device.MemInfo(); err != nil || after != free {
		t.Errorf("%d bytes were free before, %d are now, %v", free, after, err)
	}
	if r := w.run(t, w.ladder.Plan(w.src), 200<<10); (r.Route == route.Bar) != (c.Max >= 200<<10) {
		t.Errorf("%+v, and then %v", c, &r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.ladder.TuneBar(ctx, w.src); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := w.ladder.TuneBar(context.Background(), FileSource(adopt(t, "small", noisy(4096, 1)))); err == nil || !strings.Contains(err.Error(), "not in the page cache") {
		t.Errorf("a small file: %v", err)
	}
}

// TestBarCountsLargeReads checks that the number of large reads in flight, which the
// choice looks at, is 0 after them.
func TestBarCountsLargeReads(t *testing.T) {
	t.Setenv(nvfsSwitch, "0")
	w := newFixture(t)
	p := w.ladder.Plan(w.src)
	bar := p.keep(route.Bar).routes[0].(*barRoute)
	if r := w.run(t, p, barLimit.From); r.Route != route.Bar || bar.inFlight.Load() != 0 {
		t.Errorf("%v, %d in flight afterwards", &r, bar.inFlight.Load())
	}
	bar.inFlight.Store(barLimit.Reads)
	defer bar.inFlight.Store(0)
	if r := w.run(t, p, barLimit.From); r.Route != route.Ring || r.Declined[route.Bar] != barTexts[busy] {
		t.Errorf("at the limit: %v", &r)
	}
	// The ring writes to addresses, which must still be the buffer's.
	o := w.op(barLimit.From)
	o.Buf = freedBuffer{}
	res := make([]route.Receipt, 1)
	if err := p.Run(context.Background(), []Op{o}, res); !errors.Is(err, route.ErrFreed) || res[0].Bytes != 0 {
		t.Errorf("freed memory at the limit: %v, %v", &res[0], err)
	}
}

// TestBarNeedsARegisteredBuffer checks that a mapping is used only for a buffer that
// its user keeps registered: another may be unmapped at any time.
func TestBarNeedsARegisteredBuffer(t *testing.T) {
	t.Setenv(nvfsSwitch, "0")
	w := newFixture(t)
	p := w.ladder.Plan(w.src)
	bar := p.routes[0]
	kept, loose := w.op(4096), w.op(4096)
	loose.Buf = nil
	if d := declines(bar, kept, false); p.Best() != route.Bar || d != nil {
		t.Fatalf("%v declines a registered buffer: %v", p.Best(), d)
	}
	if d := declines(bar, loose, false); d != barTexts[unregistered] {
		t.Errorf("a buffer that is not kept: %v", d)
	}
	if mem, below := p.SinglePread(&kept); len(mem) != 1<<20 || below != barLimit.From {
		t.Errorf("single pread: %d bytes, below %d", len(mem), below)
	}
}
