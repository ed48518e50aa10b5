package gdrdrv_test

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/gdrdrv"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

// Invariants D: handle ranges [h, h + pages) never overlap; the pin range is
// 64 KiB aligned and contains what was asked for.
func TestHandleRangesNeverOverlap(t *testing.T) {
	w := newFixture(t, soft.Config{}, false)
	defer w.close()
	va := w.Alloc(8 << 20)
	type span struct{ first, pages uint64 }
	var used []span
	rapid.Check(t, func(t *rapid.T) {
		addr := va + rapid.Uint64Range(0, 8<<20-1).Draw(t, "offset")
		size := rapid.Uint64Range(1, va+8<<20-addr).Draw(t, "size")
		p, err := w.c.Pin(addr, size)
		if err != nil {
			t.Fatal(err)
		}
		i, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if i.VA%page != 0 || i.MappedSize%page != 0 || i.VA > addr || i.VA+i.MappedSize < addr+size ||
			addr-i.VA >= page || i.VA+i.MappedSize-(addr+size) >= page || i.PageSize != page {
			t.Fatalf("pin of %#x+%#x covers %#x+%#x", addr, size, i.VA, i.MappedSize)
		}
		used = append(used, span{p.Handle(), i.MappedSize / abi.HOST_PAGE})
		if rapid.Bool().Draw(t, "unpin") {
			if err := p.Unpin(); err != nil {
				t.Fatal(err)
			}
		}
	})
	slices.SortFunc(used, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(used); i++ {
		if used[i-1].first+used[i-1].pages > used[i].first {
			t.Errorf("handles %+v and %+v overlap", used[i-1], used[i])
		}
	}
	w.Free(va)
}

// Invariants D: a handle has at most one mapping; mapping needs in-page offset
// 0 and length ≤ mapped_size; the type can change only while unmapped.
func TestOneMappingPerHandle(t *testing.T) {
	w := newFixture(t, soft.Config{Scatter: true}, false)
	defer w.close()
	va := w.Alloc(block)
	w.Fill(va, block, 3)
	p, err := w.c.Pin(va, 3*page)
	w.Check(err)
	inside, err := w.c.Pin(va+8, page)
	w.Check(err)
	if _, err := inside.Map(4096, rw); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "GPU page") {
		t.Errorf("map of a pin that begins in a page: %v", err)
	}
	for _, n := range []int{3*page + 1, 0, -1} {
		if _, err := p.Map(n, rw); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("map of %d bytes: %v", n, err)
		}
	}
	for _, n := range []int{1, 4096, 5000, 3 * page} {
		m, err := p.Map(n, rw)
		w.Check(err)
		if _, err := p.Map(n, rw); !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("second mapping: %v", err)
		}
		// The module's own answer, which the client never gets to see.
		if err := p.RequestType(abi.GDR_MAPPING_TYPE_WC); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("type while mapped: %v", err)
		}
		i, err := p.Info()
		if err != nil || i.Type != abi.GDR_MAPPING_TYPE_WC {
			t.Errorf("mapped as %v, %v", i.Type, err)
		}
		if b := dev.Bytes(m); b[0] != 3 || b[len(b)-1] != 3 {
			t.Error("the mapping shows other bytes")
		}
		for range 2 {
			w.Check(m.Unmap())
		}
		if i, err := p.Info(); err != nil || i.Type != abi.GDR_MAPPING_TYPE_NONE {
			t.Errorf("unmapped as %v, %v", i.Type, err)
		}
		w.Check(p.RequestType(abi.GDR_MAPPING_TYPE_WC))
	}
	for _, typ := range []abi.MappingType{abi.GDR_MAPPING_TYPE_CACHING, abi.GDR_MAPPING_TYPE_DEVICE} {
		if err := p.RequestType(typ); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("type %d: %v", typ, err)
		}
	}
	if err := p.RequestType(4); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("type 4: %v", err)
	}
	w.Free(va)
}

// Invariants D: after a free callback the flag is 1, loads and stores fault, map
// gives -EINVAL, unpin still succeeds once.
func TestAfterFreeCallback(t *testing.T) {
	w := newFixture(t, soft.Config{}, true)
	defer w.close()
	va := w.Alloc(block)
	p, err := w.c.Pin(va, 2*page)
	w.Check(err)
	m, err := p.Map(2*page, rw)
	w.Check(err)
	if gone, err := p.Revoked(); gone || err != nil {
		t.Errorf("revoked %v, %v", gone, err)
	}
	w.Free(va)
	if gone, err := p.Revoked(); !gone || err != nil {
		t.Errorf("revoked %v, %v", gone, err)
	}
	for _, i := range []int{0, 2*page - 1} {
		if _, fault := load(dev.Bytes(m), i); !fault {
			t.Errorf("byte %d can be read", i)
		}
	}
	w.Check(m.Unmap())
	if _, err := p.Map(page, rw); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("map: %v", err)
	}
	if i, err := p.Info(); err != nil || i.MappedSize != 2*page || i.Type != abi.GDR_MAPPING_TYPE_NONE {
		t.Errorf("info %+v, %v", i, err)
	}
	w.Check(p.RequestType(abi.GDR_MAPPING_TYPE_WC))
	w.Check(p.Unpin())
	if err := p.Unpin(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second unpin: %v", err)
	}
}

// Invariants D: in persistent mode the flag stays 0 and the mapping stays valid
// after the owner frees.
func TestPersistentMappingOutlivesFree(t *testing.T) {
	w := newFixture(t, soft.Config{Memory: 4 << 20}, false)
	defer w.close()
	va := w.Alloc(block)
	w.Fill(va, block, 7)
	p, err := w.c.Pin(va, block)
	w.Check(err)
	m, err := p.Map(block, rw)
	w.Check(err)
	w.Free(va)
	other := w.Alloc(block)
	w.Fill(other, block, 9)
	if gone, err := p.Revoked(); gone || err != nil {
		t.Errorf("revoked %v, %v", gone, err)
	}
	if b := dev.Bytes(m); !bytes.Equal(b, bytes.Repeat([]byte{7}, block)) {
		t.Error("the bytes have changed")
	}
	w.Check(p.Unpin()) // unmaps too
	w.Free(other)
}

// Invariants D: pin and unpin leave BAR1 use unchanged; pinning managed, host
// or freed memory gives -EINVAL and pins nothing.
func TestRefusedPinsPinNothing(t *testing.T) {
	for _, callback := range []bool{false, true} {
		w := newFixture(t, soft.Config{}, callback)
		va := w.Alloc(block)
		host, err := w.GPU.Alloc(gpu.KindHost, block, 0)
		w.Check(err)
		managed, err := w.GPU.Alloc(gpu.KindManaged, block, 0)
		w.Check(err)
		gone := w.Alloc(block)
		w.Free(gone)
		for name, tc := range map[string]struct{ addr, size uint64 }{
			"address 0":      {0, page},
			"nothing":        {va, 0},
			"host memory":    {uint64(host), page},
			"managed memory": {uint64(managed), page},
			"freed memory":   {gone, page},
			"past the end":   {va, block + 1},
			"wraps":          {va, -page & (1<<64 - 1)},
			"wraps to 0":     {va, -va},
		} {
			_, err := w.c.Pin(tc.addr, tc.size)
			if !errors.Is(err, syscall.EINVAL) || w.RM.Live() != 0 || w.RM.BAR1Used(0) != 0 {
				t.Errorf("callback %v, %s: %v, %d pins", callback, name, err, w.RM.Live())
			}
		}
		w.Check(w.GPU.Free(host))
		w.Check(w.GPU.Free(managed))
		w.Free(va)
		w.close()
	}
}

// session opens a session of gdrcopy on the module.
func (w *fixture) session() *gdrcopy.Session {
	w.T.Helper()
	s, err := gdrcopy.Open(dev.With(&machine.Machine{}, dev.Of(w.OS)), w.GPU)
	w.Check(err)
	return s
}

// Invariants D: copy_to and copy_from handle any alignment and size 0; bytes
// written through the map are read back by the GPU.
func TestCopiesThroughGDRCopy(t *testing.T) {
	w := newFixture(t, soft.Config{Scatter: true}, false)
	va := w.Alloc(block)
	s := w.session()
	b, err := s.Pin(gpu.Addr(va+1234), 300_000)
	w.Check(err)
	w.Check(b.Map())
	want := w.Read(va, block)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		n := rng.IntN(9000)
		off := rng.IntN(300_000 - n)
		part := make([]byte, n)
		for i := range part {
			part[i] = byte(rng.Uint32())
		}
		w.Check(b.CopyTo(uint64(off), part))
		copy(want[1234+off:], part)
		got := make([]byte, n)
		w.Check(b.CopyFrom(got, uint64(off)))
		if !bytes.Equal(got, part) {
			t.Fatalf("%d bytes at %d come back otherwise", n, off)
		}
	}
	w.Check(b.CopyTo(300_000, nil))
	if !bytes.Equal(w.Read(va, block), want) {
		t.Error("the GPU sees other bytes")
	}
	w.Free(va)
	w.Check(b.CopyTo(0, []byte("the pin is persistent")))
	w.Check(s.Close())
	w.close()
}

// A copy into memory that was revoked is an error, not the end of the process.
func TestCopyAfterRevoke(t *testing.T) {
	w := newFixture(t, soft.Config{}, true)
	va := w.Alloc(block)
	s := w.session()
	b, err := s.Pin(gpu.Addr(va), page)
	w.Check(err)
	w.Check(b.Map())
	w.Free(va)
	if err := b.CopyTo(0, make([]byte, 100)); err == nil {
		t.Error("a copy into revoked memory succeeded")
	}
	if err := b.CopyFrom(make([]byte, 100), 0); err == nil {
		t.Error("a copy from revoked memory succeeded")
	}
	w.Check(s.Close())
	w.close()
}

// Invariants D: pin, map, unmap, unpin, free and close in any order leave
// nothing, over 100 000 rounds.
func TestNothingLeaks(t *testing.T) {
	rounds := 100_000
	if testing.Short() {
		rounds /= 50
	}
	w := newFixture(t, soft.Config{}, true)
	va := w.Alloc(block)
	for i := range rounds {
		p, err := w.c.Pin(va, page)
		w.Check(err)
		if i%16 == 0 {
			m, err := p.Map(page, unix.PROT_READ)
			w.Check(err)
			if i%32 == 0 {
				w.Check(m.Unmap())
			}
		}
		if i%512 == 0 { // the owner is faster
			w.Free(va)
			va = w.Alloc(block)
		}
		if i%128 == 0 { // close is faster
			w.Check(w.c.Close())
			w.c, err = client.Open(dev.Of(w.OS))
			w.Check(err)
			continue
		}
		w.Check(p.Unpin())
	}
	w.Free(va)
	w.close()
}

// TestInterleavings lets pins, mappings, unpins, the owner's free, the closing
// of the file and the end of the process meet in any order. Unpin during the
// callback must not deadlock, and nothing may be freed twice.
func TestInterleavings(t *testing.T) {
	n := uint64(10_000)
	if testing.Short() {
		n /= 20
	}
	synctest.Test(t, func(t *testing.T) {
		fixtures := []*fixture{newFixture(t, soft.Config{}, true), newFixture(t, soft.Config{Scatter: true}, false)}
		passed := map[string]int{}
		for seed := range n {
			rng := rand.New(rand.NewPCG(seed, 3))
			for _, at := range playFiles(t, fixtures[rng.IntN(2)], rng, seed) {
				name, _, _ := strings.Cut(at, "/")
				passed[name]++
			}
		}
		for _, at := range []string{"gdrdrv.callback", "gdrdrv.zapped", "gdrdrv.release", "p2p.put.woken"} {
			if uint64(passed[at]) < n/100 {
				t.Errorf("%s was passed %d times in %d sequences", at, passed[at], n)
			}
		}
		for _, w := range fixtures {
			w.close()
		}
	})
}
