package ring

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

// A vma is a mapping as the kernel has it.
type vma struct {
	from, to gpu.Addr
	resident int64
	flags    []string
}

// vmas are the mappings in [from, to).
func vmas(t testing.TB, from, to gpu.Addr) (list []vma) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skipf("needs /proc/self/smaps: %v", err)
	}
	var v vma
	for line := range strings.Lines(string(text)) {
		var a, b gpu.Addr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &a, &b); n == 2 {
			v = vma{from: a, to: b}
		}
		if n, _ := fmt.Sscanf(line, "Rss: %d kB", &v.resident); n == 1 {
			v.resident <<= 10
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && v.from < to && from < v.to {
			v.flags = strings.Fields(flags)
			list = append(list, v)
		}
	}
	return list
}

// vmFlags are the kernel's flags of the mapping at an address; none where nothing
// is mapped.
func vmFlags(t *testing.T, a gpu.Addr) []string {
	t.Helper()
	for _, v := range vmas(t, a, a+1) {
		return v.flags
	}
	return nil
}

// What the budget counts of a slab is what it takes, once it is pinned. Where the
// kernel has placed it decides whether it could take more, so there are several.
func TestSlabsAreAccountedFor(t *testing.T) {
	const n = 4*hugePage + 3*page
	for range 6 {
		s, err := pinHuge(&nullGPU{t: t}, n)
		if err != nil {
			t.Fatal(err)
		}
		defer s.free(&nullGPU{t: t})
		base := gpu.HostAddr(s.mapping)
		for at := s.addr; at < s.addr+n; at += page {
			s.mapping[at-base] = 1
		}
		var resident int64
		for _, v := range vmas(t, base, base+gpu.Addr(len(s.mapping))) {
			resident += v.resident
		}
		if resident != n {
			t.Fatalf("%d bytes are resident for %d", resident, n)
		}
	}
}

// touchedGPU finds the memory that it registers resident.
type touchedGPU struct{ nullGPU }

func (g *touchedGPU) Register(host uintptr, n uint64, _ gpu.Flags) error {
	var resident int64
	for _, v := range vmas(g.t, gpu.Addr(host), gpu.Addr(host)+gpu.Addr(n)) {
		resident += v.resident
	}
	if resident < int64(n) {
		g.t.Errorf("%d of %d bytes are there when the driver pins them", resident, n)
	}
	return nil
}

// The kernel has provided a slab before the driver pins it.
func TestSlabsAreTouched(t *testing.T) {
	g := &touchedGPU{nullGPU{t: t}}
	s, err := pinHuge(g, 4*hugePage+3*page)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.free(g); err != nil {
		t.Error(err)
	}
}

// Slots lie in huge pages where the kernel has some, are not copied by fork, and
// go away with the ring.
func TestSlabsInHugePages(t *testing.T) {
	if race {
		t.Skip("needs a build without the race detector, which does not see such memory")
	}
	dev := newOddGPU(openGPU(t))
	r, err := New(dev, Config{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := r.pool.slabs[0]
	if s.mapping == nil || s.addr%hugePage != 0 {
		t.Errorf("the slab is at %v", s.addr)
	}
	flags := vmFlags(t, s.addr)
	if !slices.Contains(flags, "dc") {
		t.Errorf("fork copies the slab: %v", flags)
	}
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err == nil && !slices.Contains(flags, "hg") {
		t.Errorf("the kernel was not asked for huge pages: %v", flags)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if dev.pinned() != 0 || slices.Contains(vmFlags(t, s.addr), "hg") {
		t.Error("the slab is still there")
	}
}

// Where memory cannot be pinned in place the driver makes it.
func TestSlabsOfTheDriver(t *testing.T) {
	dev := newOddGPU(openGPU(t))
	dev.set(func(verb string, _ uint64) error {
		if verb == "register" {
			return gpu.Fail(verb, gpu.ErrNotSupported, "")
		}
		return nil
	})
	r := openRing(t, dev, Config{Workers: 2})
	const n = 5 << 20
	f, b := newFile(t, noise(1, n)), newBuffer(t, dev, n)
	res, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
	if err != nil || res.N != n || !bytes.Equal(b.bytes(t), f.data) {
		t.Errorf("%+v, %v", res, err)
	}
	r.pool.mu.Lock() // a worker may have come late
	defer r.pool.mu.Unlock()
	for _, s := range r.pool.slabs {
		if s.mapping != nil {
			t.Errorf("the slab at %v was pinned in place", s.addr)
		}
	}
}
