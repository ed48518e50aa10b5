package p2p

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
)

// sequences is how many interleavings are run; all of them follow from their
// numbers.
const sequences = 10_000

// A drama is a cast of actors that fight over the memory of one GPU. What they
// do is drawn from the seed, who goes on when is too.
type drama struct {
	*fixture
	buf    buffer
	pins   []*played
	broken []string
}

// A buffer is memory of the owner. When it has been freed, its frames go to a
// successor, whose bytes must stay as they are.
type buffer struct {
	va, n     uint64
	successor uint64
}

const sentinel = 0xd5

// played is one pin and what happened to it.
type played struct {
	persistent bool
	table      *PageTable
	calls      int
	got, put   bool // the calls have returned success
	callAfter  bool // the callback began after put had returned
	maps       []*DMAMapping
}

func (d *drama) fail(format string, args ...any) {
	d.broken = append(d.broken, fmt.Sprintf(format, args...))
}

// expect takes success, or one of the errors that a race may lead to.
func (d *drama) expect(what string, err error, allowed ...error) {
	for _, a := range allowed {
		if errors.Is(err, a) {
			return
		}
	}
	if err != nil {
		d.fail("%s: %v", what, err)
	}
}

// owner frees a buffer and allocates again at once, so that its frames come
// back into use.
func (d *drama) owner() {
	b := &d.buf
	d.expect("free", d.dev.Free(gpu.Addr(b.va)))
	a, err := d.dev.Alloc(gpu.KindDevice, 2<<20, 0)
	if err != nil {
		return // persistent pins keep the memory
	}
	b.successor = uint64(a)
	d.expect("fill", d.dev.CopyIn(a, bytes.Repeat([]byte{sentinel}, int(b.n))))
}

// client pins, maps for the engines, perhaps unmaps, and puts.
func (d *drama) client(p *played, peers []*pcie.Function, unmap bool) func() {
	return func() {
		var err error
		if p.persistent {
			p.table, err = d.rm.GetPagesPersistent(d.task, d.buf.va, d.buf.n, 0)
		} else {
			p.table, err = d.rm.GetPages(d.task, d.buf.va, d.buf.n, d.callback(p))
		}
		if err != nil {
			d.expect("get", err, syscall.EINVAL)
			return
		}
		p.got = true
		for _, peer := range peers {
			m, err := d.rm.DMAMapPages(peer, p.table)
			if err != nil {
				d.expect("map", err, syscall.EINVAL)
				continue
			}
			p.maps = append(p.maps, m)
		}
		if unmap {
			for _, m := range p.maps {
				d.expect("unmap", d.rm.DMAUnmapPages(m.Peer, p.table, m))
			}
		}
		if p.persistent {
			err = d.rm.PutPagesPersistent(d.task, d.buf.va, p.table, 0)
		} else {
			err = d.rm.PutPages(d.task, d.buf.va, p.table)
		}
		d.expect("put", err)
		p.put = true
	}
}

// callback does what clients do in it, and what they must not.
func (d *drama) callback(p *played) func(*Task, *PageTable) {
	return func(t *Task, table *PageTable) {
		p.calls++
		p.callAfter = p.put
		if err := d.rm.PutPages(t, d.buf.va, table); !errors.Is(err, syscall.EDEADLK) {
			d.fail("put inside the callback: %v", err)
		}
		for _, m := range p.maps {
			d.expect("unmap in callback", d.rm.DMAUnmapPages(m.Peer, m.table, m))
		}
	}
}

// engine writes to whatever it has heard of, at any time.
func (d *drama) engine(fn *pcie.Function, p *played, id uint64) func() {
	return func() {
		e := pcie.Engine{Port: fn, Points: &d.points, ID: id}
		data := bytes.Repeat([]byte{byte(id)}, int(d.buf.n))
		for range 2 {
			d.points.At("engine", id)
			var addrs []uint64
			if p.table != nil {
				addrs = p.table.Pages
			}
			for _, m := range p.maps {
				if m.Peer == fn {
					addrs = m.Addresses
				}
			}
			if addrs == nil {
				continue
			}
			_, err := e.Write(ranges(addrs), data)
			d.expect("write", err, pcie.ErrAborted, pcie.ErrUnmapped)
		}
	}
}

// stage is where plays are given, one after the other: machines of all kinds.
func stage(t fataler) (fixtures []*fixture) {
	for _, s := range []setup{
		{iommu: pcie.Off},
		{iommu: pcie.Off, scatter: true},
		{iommu: pcie.Translating},
		{iommu: pcie.Translating, scatter: true},
		{bar1: 64 << 20, memory: 128 << 20}, // BAR1 is handed out
	} {
		if s.memory == 0 {
			s.memory = 8 << 20
		}
		fixtures = append(fixtures, newFixture(t, s))
	}
	return fixtures
}

// cast draws the actors.
func cast(fixtures []*fixture, seed uint64) (*drama, []func()) {
	rng := rand.New(rand.NewPCG(seed, 1))
	d := &drama{fixture: fixtures[rng.IntN(len(fixtures))]}
	d.buf = buffer{va: d.alloc(2 << 20), n: uint64(1+rng.IntN(3)) * PageSize}
	var actors []func()
	for range 1 + rng.IntN(2) {
		p := &played{persistent: rng.IntN(4) == 0}
		d.pins = append(d.pins, p)
		peers := []*pcie.Function{d.near, d.far}[:1+rng.IntN(2)]
		actors = append(actors, d.client(p, peers, rng.IntN(2) == 0))
		for _, fn := range peers {
			actors = append(actors, d.engine(fn, p, uint64(10+len(actors))))
		}
	}
	if rng.IntN(4) == 0 {
		actors = append(actors, func() { d.rm.Revoke() }) // the GPU is reset
	}
	return d, append(actors, d.owner)
}

// curtain looks at the end of the play.
func (d *drama) curtain() {
	for i, p := range d.pins {
		switch {
		case p.calls > 1:
			d.fail("pin %d was called back %d times", i, p.calls)
		case p.callAfter:
			d.fail("pin %d was called back after put had returned", i)
		case p.persistent && p.calls > 0:
			d.fail("persistent pin %d was called back", i)
		case p.got && !p.put:
			d.fail("pin %d was not put", i)
		}
	}
	if b := d.buf; b.successor != 0 {
		if got := d.read(b.successor, int(b.n)); !bytes.Equal(got, bytes.Repeat([]byte{sentinel}, int(b.n))) {
			d.fail("bytes of memory that was freed and allocated again have changed")
		}
		d.free(b.successor)
	}
	if n, used, u := d.rm.Live(), d.rm.BAR1Used(0), d.fabric.Usage(); n != 0 || used != 0 || u.Accesses != 0 || u.Mappings != 0 {
		d.fail("left over: %d pins, %d bytes of BAR1, %+v", n, used, u)
	}
}

// play runs one sequence. It returns the names of the points in order.
func play(t *testing.T, fixtures []*fixture, seed uint64) []string {
	d, actors := cast(fixtures, seed)
	trace, err := d.points.Run(seed, synctest.Wait, actors...)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	d.curtain()
	if len(d.broken) > 0 {
		t.Fatalf("seed %d: %q\nafter %q", seed, d.broken, trace)
	}
	for i, at := range trace {
		trace[i], _, _ = strings.Cut(at, "/")
	}
	return trace
}

// TestInterleavings runs random interleavings of pin, map, DMA, unmap, put,
// free, reset and revoke, and holds each to the invariants of part B. A failure names
// its seed.
func TestInterleavings(t *testing.T) {
	n := uint64(sequences)
	if testing.Short() {
		n /= 20
	}
	synctest.Test(t, func(t *testing.T) {
		fixtures := stage(t)
		passed := map[string]int{}
		for seed := range n {
			for _, at := range play(t, fixtures, seed) {
				passed[at]++
			}
		}
		for _, r := range fixtures {
			r.close()
		}
		// A race that never happens proves nothing.
		for _, at := range []string{"p2p.put.woken", "p2p.revoke.woken", "p2p.put.hidden", "p2p.revoke.hidden", "engine.moved"} {
			if uint64(passed[at]) < n/100 {
				t.Errorf("%s was passed %d times in %d sequences", at, passed[at], n)
			}
		}
	})
}

// TestInterleavingsFollowTheSeed runs sequences twice, on fresh machines.
func TestInterleavingsFollowTheSeed(t *testing.T) {
	run := func() (traces [][]string) {
		synctest.Test(t, func(t *testing.T) {
			fixtures := stage(t)
			for seed := range uint64(50) {
				traces = append(traces, play(t, fixtures, seed*1000))
			}
			for _, r := range fixtures {
				r.close()
			}
		})
		return traces
	}
	if diff := cmp.Diff(run(), run()); diff != "" {
		t.Errorf("the same seeds gave other sequences:\n%s", diff)
	}
}
