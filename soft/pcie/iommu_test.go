package pcie

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTranslation(t *testing.T) {
	m := newMachine(t, Config{IOMMU: Translating}, ForwardAll)
	b, mem := bar(t, m.b, 8*pageSize)
	pages := []uint64{b.Base() + 3*pageSize, b.Base() + 4*pageSize, b.Base()}
	mp, err := m.c.Map(pages, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	bus := mp.Addrs()[0]
	if mp.Addrs()[2] != bus+2*pageSize {
		t.Errorf("bus addresses %#x are not in a row", mp.Addrs())
	}
	data := pattern(3*pageSize, 50)
	e := Engine{Port: m.c}
	if _, err := e.Write([]Range{{bus, len(data)}}, data); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mem[3*pageSize:5*pageSize], data[:2*pageSize]) || !bytes.Equal(mem[:pageSize], data[2*pageSize:]) {
		t.Error("the pages are not where the mapping says")
	}
	for name, try := range map[string]func() error{
		"past the mapping": func() error { return dma(m.c, Write, bus+2*pageSize, pageSize+1) },
		"another device":   func() error { return dma(m.a, Write, bus, 1) },
		"physical address": func() error { return dma(m.c, Write, b.Base(), 1) },
	} {
		if err := try(); !errors.Is(err, ErrUnmapped) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mp.Unmap()
	mp.Unmap()
	if err := dma(m.c, Write, bus, 1); !errors.Is(err, ErrUnmapped) {
		t.Errorf("after Unmap: %v", err)
	}
	if m.Usage().Mappings != 0 {
		t.Error("the mapping is still counted")
	}
}

// A switch looks at the address before the IOMMU does; ACS sends it up.
func TestSwitchBypassesIOMMU(t *testing.T) {
	m := newMachine(t, Config{IOMMU: Translating}, ForwardAll)
	b, _ := bar(t, m.b, pageSize)
	if err := dma(m.a, Write, b.Base(), 8); err != nil {
		t.Errorf("below one switch: %v", err)
	}
	m.right.SetACS(true)
	if err := dma(m.a, Write, b.Base(), 8); !errors.Is(err, ErrUnmapped) {
		t.Errorf("with ACS: %v", err)
	}
}

// A translated request for a peer comes from the root, which must forward it
// even where a switch could have.
func TestTranslatedRequestsNeedForwarding(t *testing.T) {
	m := newMachine(t, Config{IOMMU: Translating}, ForwardNone)
	b, _ := bar(t, m.b, pageSize)
	mp, err := m.a.Map([]uint64{b.Base()}, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer mp.Unmap()
	if err := dma(m.a, Write, mp.Addrs()[0], 8); !errors.Is(err, ErrNoRoute) {
		t.Errorf("got %v", err)
	}
}

func TestUnmapWaitsForAccesses(t *testing.T) {
	m := newMachine(t, Config{IOMMU: Translating}, ForwardAll)
	b, _ := bar(t, m.b, pageSize)
	mp, err := m.c.Map([]uint64{b.Base()}, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.c.Acquire(mp.Addrs()[0], 8, Write)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		mp.Unmap()
		close(done)
	}()
	for dma(m.c, Write, mp.Addrs()[0], 8) == nil {
		runtime.Gosched() // until Unmap has begun
	}
	select {
	case <-done:
		t.Fatal("unmapped under a access")
	default:
	}
	if err := l.Release(8); err != nil {
		t.Error(err)
	}
	<-done
}

func TestBadMaps(t *testing.T) {
	for _, mode := range []IOMMU{Off, Translating} {
		m := newMachine(t, Config{IOMMU: mode}, ForwardAll)
		for _, tc := range []struct {
			pages []uint64
			size  uint64
		}{{nil, pageSize}, {[]uint64{0}, 0}, {[]uint64{0}, 100}, {[]uint64{1}, pageSize}} {
			if _, err := m.a.Map(tc.pages, tc.size); err == nil {
				t.Errorf("%v: %v pages of %d were mapped", mode, tc.pages, tc.size)
			}
		}
	}
	m := newMachine(t, Config{IOMMU: Translating}, ForwardAll)
	if _, err := m.a.Map([]uint64{0}, 1<<47); err == nil {
		t.Error("more than there are addresses was mapped")
	}
	if _, err := m.a.Map(make([]uint64, 1<<10), 1<<38); err == nil {
		t.Error("a size that overflows was mapped")
	}
	if m.Usage().Mappings != 0 {
		t.Error("a refused mapping is counted")
	}
}

// Whatever is mapped and unmapped, a device reaches the pages that are mapped
// for it, in their order, and nothing else.
func TestMappingsStayApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := New(Config{IOMMU: Translating})
		slot, err := f.AddHostBridge(ForwardAll).AddRootPort("root")
		if err != nil {
			t.Fatal(err)
		}
		fn, err := slot.AddFunction("dev")
		if err != nil {
			t.Fatal(err)
		}
		const n = 16
		mem := make([]byte, (n+1)*pageSize)
		h, err := f.AddHost(mem)
		if err != nil {
			t.Fatal(err)
		}
		first := (h.Base() + pageSize - 1) &^ (pageSize - 1)
		page := func(i int) []byte { return mem[first-h.Base()+uint64(i*pageSize):][:pageSize] }
		var live []*Mapping
		var of [][]int
		t.Repeat(map[string]func(*rapid.T){
			"map": func(t *rapid.T) {
				order := rapid.SliceOfN(rapid.IntRange(0, n-1), 1, 6).Draw(t, "pages")
				var phys []uint64
				for _, i := range order {
					phys = append(phys, first+uint64(i*pageSize))
				}
				m, err := fn.Map(phys, pageSize)
				if err != nil {
					t.Fatal(err)
				}
				live, of = append(live, m), append(of, order)
			},
			"unmap": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				bus := live[i].Addrs()[0]
				live[i].Unmap()
				live, of = slices.Delete(live, i, i+1), slices.Delete(of, i, i+1)
				if _, err := fn.Acquire(bus, 1, Read); !errors.Is(err, ErrUnmapped) {
					t.Fatalf("after Unmap: %v", err)
				}
			},
			"": func(t *rapid.T) {
				for k, m := range live {
					l, err := fn.Acquire(m.Addrs()[0], len(of[k])*pageSize, Read)
					if err != nil {
						t.Fatal(err)
					}
					var want []byte
					for _, i := range of[k] {
						page(i)[0] = byte(i)
						want = append(want, page(i)...)
					}
					got := bytes.Join(l.Segs(), nil)
					if !bytes.Equal(got, want) {
						t.Fatalf("mapping %d shows other pages", k)
					}
					if err := l.Release(0); err != nil {
						t.Fatal(err)
					}
				}
			},
		})
	})
}
