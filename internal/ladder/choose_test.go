package ladder

import (
	"strings"
	"testing"

	"github.com/culvert-io/culvert/route"
)

// The routes as the choice sees them, best first.
var (
	nvfsTraits = Traits{ID: route.NVFS, Direct: true, Reads: true, Writes: true, Registered: true, Block: 4096, Bounce: true}
	p2pTraits  = Traits{ID: route.P2PDMA, Direct: true, Reads: true, Writes: true, Registered: true, Block: 512}
	barTraits  = Traits{ID: route.Bar, Reads: true, Registered: true, Max: 256 << 10, Limit: barLimit}
	ringTraits = Traits{ID: route.Ring, Reads: true, Writes: true, Parallel: true}
	mapTraits  = Traits{ID: route.Mapped, Reads: true}
	hostTraits = Traits{ID: route.Host, Reads: true, Writes: true, HostMemory: true}
)

// TestChoose is the table of the choice: the shape of a request and the state of the
// routes on the left, the chosen route and the reasons of better ones on the right.
func TestChoose(t *testing.T) {
	usual := []Traits{barTraits, ringTraits, mapTraits, hostTraits}
	direct := []Traits{nvfsTraits, barTraits, ringTraits, hostTraits}
	ready := State{Prepared: true}
	gone := decline(route.Ring, "pinned memory", "", "")
	for name, c := range map[string]struct {
		plan    []Traits
		op      Shape
		now     map[route.ID]State
		want    route.ID
		because string
	}{
		"small read":                {usual, Shape{Len: 4096, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: ready}, route.Bar, ""},
		"small write":               {usual, Shape{Dir: route.Write, Len: 4096, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: ready}, route.Ring, "bar:direction"},
		"large read":                {usual, Shape{Len: 1 << 20, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: ready}, route.Ring, "bar:size"},
		"not registered":            {usual, Shape{Len: 4096, OnDevice: true}, map[route.ID]State{route.Bar: ready}, route.Ring, "bar:unregistered"},
		"registered, not mapped":    {usual, Shape{Len: 4096, OnDevice: true, Registered: true}, nil, route.Ring, "bar:unprepared"},
		"O_DIRECT, cold":            {usual, Shape{Len: 4096, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: {Prepared: true, NotCached: true}}, route.Ring, "bar:page cache"},
		"host memory":               {usual, Shape{Len: 4096}, nil, route.Host, "bar:memory ring:memory mapped:memory"},
		"BAR1 busy, large":          {usual, Shape{Len: 64 << 10, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: {Prepared: true, InFlight: 6}}, route.Ring, "bar:busy"},
		"BAR1 nearly busy":          {usual, Shape{Len: 64 << 10, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: {Prepared: true, InFlight: 5}}, route.Bar, ""},
		"BAR1 busy, small":          {usual, Shape{Len: 64<<10 - 1, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: {Prepared: true, InFlight: 6}}, route.Bar, ""},
		"BAR1 busy, no ring":        {usual, Shape{Len: 64 << 10, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: {Prepared: true, InFlight: 6}, route.Ring: {Learned: gone}}, route.Bar, ""},
		"BAR1 busy, ring not there": {[]Traits{barTraits, hostTraits}, Shape{Len: 64 << 10, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: {Prepared: true, InFlight: 6}}, route.Bar, ""},
		"batch":                     {usual, Shape{Len: 4096, Batch: 1 << 20, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: ready}, route.Bar, ""},
		"large batch":               {usual, Shape{Len: 4096, Batch: 1<<20 + 1, OnDevice: true, Registered: true}, map[route.ID]State{route.Bar: ready}, route.Ring, "bar:batch"},
		"nothing to pin":            {usual, Shape{Len: 1 << 20, OnDevice: true}, map[route.ID]State{route.Ring: {Learned: gone}}, route.Mapped, "bar:size ring:pinned memory"},
		"whole blocks":              {direct, Shape{Len: 1 << 20, OnDevice: true, Registered: true}, map[route.ID]State{route.NVFS: ready}, route.NVFS, ""},
		"no whole block":            {direct, Shape{Off: 1, Len: 8190, OnDevice: true, Registered: true}, map[route.ID]State{route.NVFS: ready, route.Bar: ready}, route.Bar, "nvfs:no whole block"},
		"one whole block":           {direct, Shape{Off: 1, Len: 8191, OnDevice: true, Registered: true}, map[route.ID]State{route.NVFS: ready, route.Bar: ready}, route.NVFS, ""},
		"misaligned":                {direct, Shape{Len: 8192, OnDevice: true, Registered: true}, map[route.ID]State{route.NVFS: {Prepared: true, Misaligned: true}, route.Bar: ready}, route.Bar, "nvfs:phase"},
		"rejected before":           {direct, Shape{Len: 8192, OnDevice: true, Registered: true}, map[route.ID]State{route.NVFS: {Prepared: true, Learned: decline(route.NVFS, "storage driver", "", "")}, route.Bar: ready}, route.Bar, "nvfs:storage driver"},
		"required, bounced":         {[]Traits{nvfsTraits}, Shape{Off: 1, Len: 10, OnDevice: true, Strict: true}, nil, route.NVFS, ""},
		"required, unaligned write": {[]Traits{nvfsTraits}, Shape{Dir: route.Write, Len: 10, OnDevice: true, Strict: true}, nil, route.None, "nvfs:partial block"},
		"required, whole":           {[]Traits{p2pTraits}, Shape{Off: 512, Len: 1024, OnDevice: true, Registered: true, Strict: true}, map[route.ID]State{route.P2PDMA: ready}, route.P2PDMA, ""},
		"required, not whole":       {[]Traits{p2pTraits}, Shape{Off: 512, Len: 1000, OnDevice: true, Registered: true, Strict: true}, map[route.ID]State{route.P2PDMA: ready}, route.None, "p2pdma:partial block"},
		"unaligned ends allowed":    {[]Traits{p2pTraits}, Shape{Off: 512, Len: 1000, OnDevice: true, Registered: true}, map[route.ID]State{route.P2PDMA: ready}, route.P2PDMA, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := append([]Traits(nil), c.plan...)
			for i := range plan {
				plan[i].texts = newFake(plan[i].ID, 0).traits.texts
			}
			asked := map[int]int{}
			var why route.Declined
			got := route.None
			at := choose(plan, &c.op, func(i int) State { asked[i]++; return c.now[plan[i].ID] }, &why)
			if at >= 0 {
				got = plan[at].ID
			}
			var because []string
			for _, d := range why.List() {
				because = append(because, d.Route.String()+":"+d.Test)
			}
			if s := strings.Join(because, " "); got != c.want || s != c.because {
				t.Errorf("%v because %q, want %v because %q", got, s, c.want, c.because)
			}
			for i, n := range asked {
				if n > 1 {
					t.Errorf("%v was asked %d times", plan[i].ID, n)
				}
				if c.op.Dir == route.Write && !plan[i].Writes || plan[i].Max > 0 && c.op.Len > plan[i].Max {
					t.Errorf("%v was asked about a request that it never accepts", plan[i].ID)
				}
			}
		})
	}
}

// TestEveryReasonHasAText checks that a route has a text for each reason that its
// traits can give.
func TestEveryReasonHasAText(t *testing.T) {
	bar := barTexts
	bar[tooLarge] = (&Crossover{}).decline()
	for id, c := range map[route.ID]struct {
		traits Traits
		texts  *[numReasons]*route.Decline
	}{
		route.NVFS:   {nvfsTraits, &nvfsTexts},
		route.P2PDMA: {p2pTraits, &p2pdmaTexts},
		route.Bar:    {barTraits, &bar},
		route.Ring:   {ringTraits, &ringTexts},
		route.Mapped: {mapTraits, &mappedTexts},
		route.Vendor: {Traits{Reads: true, Writes: true}, &vendorTexts},
	} {
		tr := c.traits
		can := map[reason]bool{
			badDirection: !tr.Reads || !tr.Writes, hostMemory: !tr.HostMemory, tooLarge: tr.Max > 0,
			partialBlock: tr.Block > 0, unregistered: tr.Registered, unprepared: tr.Registered, noWholeBlock: tr.Block > 0, phase: tr.Block > 0,
			busy: tr.Limit.Reads > 0, largeBatch: tr.Limit.Batch > 0, notCached: id == route.Bar || id == route.Mapped,
		}
		for r := range reason(numReasons) {
			if d := c.texts[r]; can[r] != (d != nil) || d != nil && d.Route != id {
				t.Errorf("%v: %s: text %v, possible %t", id, reasonNames[r], d, can[r])
			}
		}
	}
}
