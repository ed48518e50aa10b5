package libnvm_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/libnvm"
)

// A modelMap is a map that the module should have.
type modelMap struct {
	vaddr uint64
	pages []uint64
	size  uint64 // of a page
	gpu   int    // which allocation; -1 for host memory
}

// TestMapsAsAProperty maps, unmaps and frees memory at random. A drive reaches
// exactly the pages that are mapped, at addresses that stay what they were; and
// what it writes there arrives where the page is.
func TestMapsAsAProperty(t *testing.T) {
	r := newFixture(t, true)
	const allocations, size = 2, 2 << 20
	rapid.Check(t, func(t *rapid.T) {
		var bases [allocations]gpu.Addr
		var live, dead []modelMap
		alloc := func(i int) {
			var err error
			if bases[i], err = r.dev.Alloc(gpu.KindDevice, size, 0); err != nil {
				t.Fatal(err)
			}
		}
		end := func(gone func(modelMap) bool) {
			for _, m := range live {
				if gone(m) {
					dead = append(dead, m)
				}
			}
			live = slices.DeleteFunc(live, gone)
		}
		for i := range bases {
			alloc(i)
		}
		defer func() {
			for _, m := range live {
				if err := r.unmap(m.vaddr); err != nil {
					t.Errorf("unmap: %v", err)
				}
				if err := r.unmap(m.vaddr); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("unmapped twice: %v", err)
				}
			}
			for _, b := range bases {
				if err := r.dev.Free(b); err != nil {
					t.Errorf("free: %v", err)
				}
			}
		}()
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0: // host memory: one map in each 64 KiB, which the module can tell apart
				at := uint64(rapid.IntRange(0, 1).Draw(t, "half")) * abi.GPU_PAGE_SIZE
				m := modelMap{vaddr: addr(r.mem) + at, size: abi.HOST_PAGE_SIZE, gpu: -1}
				if slices.ContainsFunc(live, func(x modelMap) bool { return x.vaddr == m.vaddr }) {
					continue
				}
				m.pages = mapPages(t, r, abi.NVM_MAP_HOST_MEMORY, m, rapid.IntRange(1, 16).Draw(t, "pages"))
				live = append(live, m)
			case 1:
				i := rapid.IntRange(0, allocations-1).Draw(t, "allocation")
				first := rapid.IntRange(0, size/abi.GPU_PAGE_SIZE-1).Draw(t, "page")
				m := modelMap{vaddr: uint64(bases[i]) + uint64(first)*abi.GPU_PAGE_SIZE, size: abi.GPU_PAGE_SIZE, gpu: i}
				if slices.ContainsFunc(live, func(x modelMap) bool { return x.vaddr == m.vaddr }) {
					continue
				}
				n := rapid.IntRange(1, size/abi.GPU_PAGE_SIZE-first).Draw(t, "pages")
				m.pages = mapPages(t, r, abi.NVM_MAP_DEVICE_MEMORY, m, n)
				live = append(live, m)
			case 2:
				if len(live) == 0 {
					continue
				}
				m := rapid.SampledFrom(live).Draw(t, "map")
				if err := r.unmap(m.vaddr + uint64(rapid.IntRange(0, abi.HOST_PAGE_SIZE-1).Draw(t, "inside the page"))); err != nil {
					t.Fatal(err)
				}
				end(func(x modelMap) bool { return x.vaddr == m.vaddr })
			case 3:
				i := rapid.IntRange(0, allocations-1).Draw(t, "allocation")
				if err := r.dev.Free(bases[i]); err != nil {
					t.Fatal(err)
				}
				end(func(x modelMap) bool { return x.gpu == i })
				alloc(i)
			}
			checkMaps(t, r, live, dead)
		}
	})
}

func mapPages(t *rapid.T, r *fixture, req uintptr, m modelMap, n int) []uint64 {
	pages, err := r.call(req, m.vaddr, n)
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// checkMaps writes to the last bytes of pages that are mapped, and tries some
// that are not any more.
func checkMaps(t *rapid.T, r *fixture, live, dead []modelMap) {
	if n := r.m.Maps(); n != len(live) {
		t.Fatalf("the module has %d maps, want %d", n, len(live))
	}
	taken := map[uint64]bool{}
	for k, m := range live {
		for i, bus := range m.pages {
			taken[bus] = true
			if i > 0 && i < len(m.pages)-1 {
				continue // the first and the last will do
			}
			text := []byte{byte('A' + k), byte('a' + i%26), byte(m.size >> 12)}
			if !r.reach(bus+m.size-3, string(text)) {
				t.Fatalf("page %d of %d at %#x is out of reach", i, len(m.pages), bus)
			}
			got := make([]byte, 3)
			at := m.vaddr + uint64(i+1)*m.size - 3
			if m.gpu < 0 {
				copy(got, hostBytes(at, 3))
			} else if err := r.dev.CopyOut(got, gpu.Addr(at)); err != nil {
				t.Fatal(err)
			}
			if string(got) != string(text) {
				t.Fatalf("page %d of %d at %#x: %q arrived as %q", i, len(m.pages), bus, text, got)
			}
		}
	}
	for _, m := range dead {
		for _, bus := range m.pages {
			if !taken[bus] && r.reach(bus, "x") {
				t.Fatalf("%#x is within reach after its map was gone", bus)
			}
		}
	}
}

// hostBytes is memory of the test.
func hostBytes(vaddr, n uint64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&vaddr)), n)
}
