package p2p

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A model is what part B says of pins, in the plainest words: it is held
// against the resource manager step by step.
type model struct {
	*rig
	blocks map[uint64]uint64 // live allocations, with their size
	pins   []*modelPin
}

type modelPin struct {
	va, n      uint64
	table      *PageTable
	pages      []uint64
	persistent bool
	dead       bool // revoked
	calls      int
	maps       []*DMAMapping
}

func (m *model) newBlock(t *rapid.T) {
	n := uint64(rapid.IntRange(1, 3).Draw(t, "blocks")) * 2 << 20
	a, err := m.dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Skip("no memory")
	}
	m.blocks[uint64(a)] = n
}

func (m *model) anyBlock(t *rapid.T) (va, n uint64) {
	var list []uint64
	for a := range m.blocks {
		list = append(list, a)
	}
	if len(list) == 0 {
		t.Skip("no block")
	}
	slices.Sort(list)
	va = rapid.SampledFrom(list).Draw(t, "block")
	return va, m.blocks[va]
}

func (m *model) anyPin(t *rapid.T) *modelPin {
	if len(m.pins) == 0 {
		t.Skip("no pin")
	}
	return rapid.SampledFrom(m.pins).Draw(t, "pin")
}

func (m *model) get(t *rapid.T) {
	va, size := m.anyBlock(t)
	pages := size / PageSize
	first := rapid.Uint64Range(0, pages-1).Draw(t, "first")
	p := &modelPin{
		va: va + first*PageSize, n: rapid.Uint64Range(1, pages-first).Draw(t, "pages") * PageSize,
		persistent: rapid.Bool().Draw(t, "persistent"),
	}
	var err error
	if p.persistent {
		p.table, err = m.rm.GetPagesPersistent(m.task, p.va, p.n, 0)
	} else {
		p.table, err = m.rm.GetPages(m.task, 0, 0, p.va, p.n, func(*Task, *PageTable) { p.calls++ })
	}
	if errors.Is(err, syscall.ENOMEM) && !m.rm.cards[0].static {
		t.Skip("BAR1 is full")
	}
	if err != nil {
		t.Fatal(err)
	}
	p.pages = slices.Clone(p.table.Pages)
	m.pins = append(m.pins, p)
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
	if len(p.maps) == 0 {
		t.Skip("no mapping")
	}
	d := rapid.SampledFrom(p.maps).Draw(t, "mapping")
	wrong := m.near
	if d.Peer == wrong {
		wrong = m.far
	}
	if err := m.rm.DMAUnmapPages(wrong, p.table, d); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("unmap for another peer: %v", err)
	}
	for range 2 { // idempotent, with teardown too
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
		err = m.rm.PutPages(m.task, 0, 0, p.va, p.table)
	}
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	if p.dead {
		calls = 1
	}
	if p.calls != calls {
		t.Fatalf("called back %d times, want %d", p.calls, calls)
	}
	m.pins = slices.DeleteFunc(m.pins, func(x *modelPin) bool { return x == p })
}

func (m *model) freeOne(t *rapid.T) {
	va, size := m.anyBlock(t)
	m.check(m.dev.Free(gpu.Addr(va)))
	delete(m.blocks, va)
	for _, p := range m.pins {
		if p.va >= va && p.va < va+size && !p.persistent && !p.dead {
			p.dead, p.maps = true, nil
			if p.calls != 1 {
				t.Fatalf("the memory is gone, and the client was called back %d times", p.calls)
			}
		}
	}
}

// strike clears the stage for the next sequence, whatever became of this one.
func (m *model) strike() {
	for _, p := range m.pins {
		_ = m.rm.PutPages(m.task, 0, 0, p.va, p.table)
		_ = m.rm.PutPagesPersistent(m.task, p.va, p.table, 0)
	}
	for va := range m.blocks {
		_ = m.dev.Free(gpu.Addr(va))
	}
}

// invariants holds after every step.
func (m *model) invariants(t *rapid.T) {
	distinct := map[uint64]bool{}
	livePins := 0
	for _, p := range m.pins {
		// A pin never changes physical addresses while it lives.
		if !slices.Equal(p.pages, p.table.Pages) {
			t.Fatal("a pin's addresses have changed")
		}
		if p.dead {
			continue
		}
		livePins++
		for _, a := range p.pages {
			distinct[a] = true
		}
		// Live pages can be reached, at the addresses that were given.
		for _, d := range append(p.maps, &DMAMapping{Peer: m.far, Addresses: p.pages}) {
			if m.fabric.IOMMU() == pcie.Translating && d.table == nil {
				continue
			}
			if err := touch(d.Peer, d.Addresses); err != nil {
				t.Fatalf("a live page cannot be reached: %v", err)
			}
		}
	}
	// BAR1 used bytes = sum of distinct pinned extents.
	if got, want := m.rm.BAR1Used(0), uint64(len(distinct))*PageSize; got != want {
		t.Fatalf("%d bytes of BAR1 in use, want %d", got, want)
	}
	if m.rm.Live() != livePins {
		t.Fatalf("%d pins live, want %d", m.rm.Live(), livePins)
	}
	// Pages of dead pins cannot be reached, unless others pin them.
	for _, p := range m.pins {
		for _, a := range p.pages {
			if p.dead && !distinct[a] && touch(m.near, []uint64{a}) == nil {
				t.Fatalf("page %#x of a revoked pin can be reached", a)
			}
		}
	}
}

func touch(fn *pcie.Function, addrs []uint64) error {
	l, err := fn.LendAll(ranges(addrs), pcie.Read)
	if err != nil {
		return err
	}
	return l.Return(0)
}

// TestPinsFollowTheModel draws sequences of calls and compares everything that
// can be seen with the model.
func TestPinsFollowTheModel(t *testing.T) {
	for name, s := range map[string]setup{
		"static BAR1": {memory: 32 << 20, scatter: true},
		"translating": {memory: 32 << 20, iommu: pcie.Translating},
		"small BAR1":  {memory: 128 << 20, bar1: 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s)
			rapid.Check(t, func(t *rapid.T) {
				m := &model{rig: r, blocks: map[uint64]uint64{}}
				defer m.strike()
				t.Repeat(map[string]func(*rapid.T){
					"alloc": m.newBlock, "get": m.get, "map": m.mapFor, "unmap": m.unmap,
					"put": m.putOne, "free": m.freeOne, "": m.invariants,
				})
				for len(m.pins) > 0 {
					m.putOne(t)
				}
				m.invariants(t) // BAR1 returns to where it was
			})
			r.close()
		})
	}
}

// Invariant B: exhaustion of BAR1 is -ENOMEM and leaves nothing pinned.
func TestBAR1Exhaustion(t *testing.T) {
	r := newRig(t, setup{memory: 128 << 20, bar1: 64 << 20})
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
		r := newRig(t, setup{memory: 4 << 20, scatter: scatter})
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
	r := newRig(t, setup{iommu: pcie.Translating})
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
