package p2p

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A model is what part B says of pins, in the plainest words: sequences of calls
// are drawn, and what can be seen is held against it after every step.
type model struct {
	*fixture
	blocks map[uint64]modelBlock
	pins   []*modelPin
	ended  []*modelPin // put
	fills  byte
}

type modelBlock struct {
	size uint64
	fill byte // first in each page
}

type modelPin struct {
	va, n      uint64
	fill       byte // of the memory under it
	table      *PageTable
	pages      []uint64
	persistent bool
	dead       bool // revoked
	calls      int
	maps, gone []*DMAMapping // live, and ended by a revoke
}

func (m *model) newBlock(t *rapid.T) {
	b := modelBlock{size: uint64(rapid.IntRange(1, 3).Draw(t, "blocks")) * 2 << 20}
	a, err := m.dev.Alloc(gpu.KindDevice, b.size, 0)
	if err != nil {
		t.Skip("no memory")
	}
	m.fills++
	b.fill = m.fills
	for off := uint64(0); off < b.size; off += PageSize {
		m.check(m.dev.CopyIn(a+gpu.Addr(off), []byte{b.fill}))
	}
	m.blocks[uint64(a)] = b
}

func (m *model) anyBlock(t *rapid.T) (va uint64, b modelBlock) {
	if len(m.blocks) == 0 {
		t.Skip("no block")
	}
	va = rapid.SampledFrom(slices.Sorted(maps.Keys(m.blocks))).Draw(t, "block")
	return va, m.blocks[va]
}

func (m *model) anyPin(t *rapid.T) *modelPin {
	if len(m.pins) == 0 {
		t.Skip("no pin")
	}
	return rapid.SampledFrom(m.pins).Draw(t, "pin")
}

func (m *model) pinRange(p *modelPin) (err error) {
	if p.persistent {
		p.table, err = m.rm.GetPagesPersistent(m.task, p.va, p.n, 0)
	} else {
		p.table, err = m.rm.GetPages(m.task, p.va, p.n, func(*Task, *PageTable) { p.calls++ })
	}
	return err
}

func (m *model) get(t *rapid.T) {
	va, b := m.anyBlock(t)
	pages := b.size / PageSize
	first := rapid.Uint64Range(0, pages-1).Draw(t, "first")
	p := &modelPin{
		va: va + first*PageSize, n: rapid.Uint64Range(1, pages-first).Draw(t, "pages") * PageSize,
		persistent: rapid.Bool().Draw(t, "persistent"), fill: b.fill,
	}
	err := m.pinRange(p)
	if errors.Is(err, syscall.ENOMEM) && !m.rm.cards[0].static {
		t.Skip("BAR1 is full")
	}
	if err != nil {
		t.Fatal(err)
	}
	p.pages = slices.Clone(p.table.Pages)
	m.pins = append(m.pins, p)
}

// badGet asks for what cannot be pinned.
func (m *model) badGet(t *rapid.T) {
	va, b := m.anyBlock(t)
	p := &modelPin{persistent: rapid.Bool().Draw(t, "persistent")}
	switch rapid.IntRange(0, 2).Draw(t, "fault") {
	case 0:
		p.va, p.n = va+rapid.Uint64Range(1, PageSize-1).Draw(t, "odd address"), PageSize
	case 1:
		p.va, p.n = va, PageSize+rapid.Uint64Range(1, PageSize-1).Draw(t, "odd length")
	case 2:
		p.va, p.n = va+b.size-PageSize, PageSize*rapid.Uint64Range(2, 1<<20).Draw(t, "crossing")
	}
	if err := m.pinRange(p); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("%#x+%#x was pinned: %v", p.va, p.n, err)
	}
}

func (m *model) mapFor(t *rapid.T) {
	p := m.anyPin(t)
	peer := rapid.SampledFrom([]*pcie.Function{m.near, m.far}).Draw(t, "peer")
	d, err := m.rm.DMAMapPages(peer, p.table)
	if p.dead != errors.Is(err, syscall.EINVAL) || !p.dead && err != nil {
		t.Fatalf("map of a pin that is dead=%v: %v", p.dead, err)
	}
	if err == nil {
		p.maps = append(p.maps, d)
	}
}

func (m *model) unmap(t *rapid.T) {
	p := m.anyPin(t)
	all := append(slices.Clone(p.maps), p.gone...)
	if len(all) == 0 {
		t.Skip("no mapping")
	}
	d := rapid.SampledFrom(all).Draw(t, "mapping")
	wrong := m.near
	if d.Peer == wrong {
		wrong = m.far
	}
	if err := m.rm.DMAUnmapPages(wrong, p.table, d); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("unmap for another peer: %v", err)
	}
	for range 2 { // the second, and one after a revoke, do nothing
		if err := m.rm.DMAUnmapPages(d.Peer, p.table, d); err != nil {
			t.Fatal(err)
		}
	}
	p.maps = slices.DeleteFunc(p.maps, func(x *DMAMapping) bool { return x == d })
}

func (m *model) putOne(t *rapid.T) {
	p := m.anyPin(t)
	var err error
	if p.persistent {
		err = m.rm.PutPagesPersistent(m.task, p.va, p.table, 0)
	} else {
		err = m.rm.PutPages(m.task, p.va, p.table)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.pins = slices.DeleteFunc(m.pins, func(x *modelPin) bool { return x == p })
	m.ended = append(m.ended, p)
}

func (m *model) freeOne(t *rapid.T) {
	va, b := m.anyBlock(t)
	m.check(m.dev.Free(gpu.Addr(va)))
	delete(m.blocks, va)
	for _, p := range m.pins {
		if p.va >= va && p.va < va+b.size && !p.persistent && !p.dead {
			p.dead, p.gone, p.maps = true, append(p.gone, p.maps...), nil
		}
	}
}

// strike clears the stage for the next sequence, whatever became of this one.
func (m *model) strike() {
	for _, p := range m.pins {
		_ = m.rm.PutPages(m.task, p.va, p.table)
		_ = m.rm.PutPagesPersistent(m.task, p.va, p.table, 0)
	}
	for va := range m.blocks {
		_ = m.dev.Free(gpu.Addr(va))
	}
}

// live are the pins that have not ended.
func (m *model) live() []*modelPin {
	return slices.DeleteFunc(slices.Clone(m.pins), func(p *modelPin) bool { return p.dead })
}

// distinct are the pages that live pins hold.
func (m *model) distinct() map[uint64]bool {
	set := map[uint64]bool{}
	for _, p := range m.live() {
		for _, a := range p.pages {
			set[a] = true
		}
	}
	return set
}

// invariantsB are those of part B that hold after every step, by name.
var invariantsB = map[string]func(m *model, t *rapid.T){
	"a pin never changes physical addresses while it lives": func(m *model, t *rapid.T) {
		for _, p := range m.pins {
			if !slices.Equal(p.pages, p.table.Pages) {
				t.Fatal("addresses have changed")
			}
		}
	},
	"exactly one of put and revoke ends a pin": func(m *model, t *rapid.T) {
		if got, want := m.rm.Live(), len(m.live()); got != want {
			t.Fatalf("%d pins live, want %d", got, want)
		}
	},
	"the callback fires at most once and never after put": func(m *model, t *rapid.T) {
		for _, p := range append(slices.Clone(m.pins), m.ended...) {
			want := 0
			if p.dead {
				want = 1
			}
			if p.calls != want {
				t.Fatalf("called back %d times, want %d (persistent %v)", p.calls, want, p.persistent)
			}
		}
	},
	"no DMA mapping outlives its page table": func(m *model, t *rapid.T) {
		want := 0
		for _, p := range m.pins {
			want += len(p.maps)
		}
		if got := m.fabric.Usage().Mappings; got != want {
			t.Fatalf("%d mappings, want %d", got, want)
		}
	},
	"entries are length over 64 KiB": func(m *model, t *rapid.T) {
		for _, p := range m.pins {
			if uint64(p.table.Entries()) != p.n/65536 {
				t.Fatalf("%d entries for %d bytes", p.table.Entries(), p.n)
			}
		}
	},
	"BAR1 used bytes are the sum of distinct pinned extents": func(m *model, t *rapid.T) {
		if got, want := m.rm.BAR1Used(0), uint64(len(m.distinct()))*PageSize; got != want {
			t.Fatalf("%d bytes of BAR1 in use, want %d", got, want)
		}
	},
	"persistent pins keep data valid after the owner's free": func(m *model, t *rapid.T) {
		for _, p := range m.live() {
			l, err := m.near.Acquire(p.pages[len(p.pages)-1], PageSize, pcie.Read)
			if err != nil {
				t.Fatalf("a live page cannot be reached: %v", err)
			}
			if b := l.Segs()[0][0]; b != p.fill {
				t.Fatalf("the page holds %d, want %d", b, p.fill)
			}
			m.check(l.Release(0))
		}
	},
	"a DMA mapping is valid for its peer while its table lives": func(m *model, t *rapid.T) {
		for _, p := range m.pins {
			for _, d := range p.maps {
				if err := touch(d.Peer, d.Addresses); err != nil {
					t.Fatalf("a live mapping does not work: %v", err)
				}
			}
			for _, d := range p.gone {
				if m.iommu == pcie.Translating && touch(d.Peer, d.Addresses) == nil {
					t.Fatal("a mapping that was revoked works")
				}
			}
		}
	},
	"pages of pins that ended cannot be reached": func(m *model, t *rapid.T) {
		held := m.distinct()
		for _, p := range append(slices.Clone(m.pins), m.ended...) {
			for _, a := range p.pages {
				if !held[a] && touch(m.near, []uint64{a}) == nil {
					t.Fatalf("page %#x can be reached", a)
				}
			}
		}
	},
}

func touch(fn *pcie.Function, addrs []uint64) error {
	l, err := fn.AcquireAll(ranges(addrs), pcie.Read)
	if err != nil {
		return err
	}
	return l.Release(0)
}

// TestInvariants draws sequences of alloc, get, map, unmap, put and free, good
// ones and bad ones, and holds every step to the invariants.
func TestInvariants(t *testing.T) {
	for kind, s := range map[string]setup{
		"static BAR1": {memory: 32 << 20, scatter: true},
		"translating": {memory: 32 << 20, iommu: pcie.Translating},
		"small BAR1":  {memory: 128 << 20, bar1: 64 << 20},
	} {
		r := newFixture(t, s)
		for name, holds := range invariantsB {
			t.Run(name+"/"+kind, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					m := &model{fixture: r, blocks: map[uint64]modelBlock{}}
					defer m.strike()
					t.Repeat(map[string]func(*rapid.T){
						"alloc": m.newBlock, "get": m.get, "bad get": m.badGet, "map": m.mapFor, "unmap": m.unmap,
						"put": m.putOne, "free": m.freeOne, "": func(t *rapid.T) { holds(m, t) },
					})
					for len(m.pins) > 0 {
						m.putOne(t)
					}
					holds(m, t) // BAR1 returns to where it was
				})
			})
		}
		r.close()
	}
}

// Invariant B: exhaustion of BAR1 is -ENOMEM and leaves nothing pinned.
func TestBAR1Exhaustion(t *testing.T) {
	r := newFixture(t, setup{memory: 128 << 20, bar1: 64 << 20})
	defer r.close()
	va := r.alloc(64 << 20)
	// 64 MiB, of which 36 MiB are kept back.
	if _, err := r.rm.GetPagesPersistent(r.task, va, 28<<20+PageSize, 0); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a page too much: %v", err)
	}
	if r.rm.Live() != 0 || r.rm.BAR1Used(0) != 0 {
		t.Error("a refused pin left something behind")
	}
	table, _ := r.pin(va, 28<<20)
	if r.rm.BAR1Used(0) != 28<<20 {
		t.Errorf("%d bytes in use", r.rm.BAR1Used(0))
	}
	again, _ := r.pin(va+PageSize, 20<<20) // shares the places of the first
	if r.rm.BAR1Used(0) != 28<<20 {
		t.Errorf("overlapping pins use %d bytes", r.rm.BAR1Used(0))
	}
	if again.Pages[0] != table.Pages[1] {
		t.Error("overlapping pins have addresses of their own")
	}
	r.put(va, table)
	if r.rm.BAR1Used(0) != 20<<20 {
		t.Errorf("after the first put %d bytes are in use", r.rm.BAR1Used(0))
	}
	r.put(va+PageSize, again)
}

// Invariant B: persistent pins have no callback and keep data valid after the
// owner's free, until put.
func TestPersistentPinsOutliveFree(t *testing.T) {
	for _, scatter := range []bool{false, true} {
		r := newFixture(t, setup{memory: 4 << 20, scatter: scatter})
		va := r.alloc(2 << 20)
		r.fill(va, 2<<20, 0x3c)
		table, err := r.rm.GetPagesPersistent(r.task, va, 2<<20, 0)
		r.check(err)
		m, err := r.rm.DMAMapPages(r.far, table)
		r.check(err)
		r.free(va)
		next := r.alloc(2 << 20) // all that is left
		r.fill(next, 2<<20, 0xff)
		if a, err := r.dev.Alloc(gpu.KindDevice, 2<<20, 0); err == nil {
			t.Errorf("memory that is pinned was allocated again, at %v", a)
		}
		e := pcie.Engine{Port: r.far}
		got := make([]byte, 2<<20)
		_, err = e.Read(ranges(m.Addresses), got)
		r.check(err)
		if !bytes.Equal(got, bytes.Repeat([]byte{0x3c}, 2<<20)) {
			t.Error("the pinned bytes have changed")
		}
		r.check(r.rm.PutPagesPersistent(r.task, va, table, 0))
		r.free(r.alloc(2 << 20)) // it is free again
		r.free(next)
		r.close()
	}
}

// Invariant B: a DMA mapping is valid only for the peer it was made for.
func TestMappingOnlyForItsPeer(t *testing.T) {
	r := newFixture(t, setup{iommu: pcie.Translating})
	defer r.close()
	va := r.alloc(2 << 20)
	table, _ := r.pin(va, PageSize)
	m, err := r.rm.DMAMapPages(r.far, table)
	r.check(err)
	r.check(touch(r.far, m.Addresses))
	if err := touch(r.near, m.Addresses); !errors.Is(err, pcie.ErrUnmapped) {
		t.Errorf("another device: %v", err)
	}
	r.put(va, table)
	if err := touch(r.far, m.Addresses); !errors.Is(err, pcie.ErrUnmapped) {
		t.Errorf("no mapping outlives its table, but: %v", err)
	}
}
