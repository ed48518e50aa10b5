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

// vmFlags are the kernel's flags of the mapping at an address; none where nothing
// is mapped.
func vmFlags(t *testing.T, a gpu.Addr) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skipf("needs /proc/self/smaps: %v", err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		var from, to gpu.Addr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= a && a < to
		} else if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			return strings.Fields(flags)
		}
	}
	return nil
}

// Slots lie in huge pages where the kernel has some, are not copied by fork, and
// go away with the ring.
func TestSlotsInHugePages(t *testing.T) {
	if !inPlace {
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
func TestSlotsOfTheDriver(t *testing.T) {
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
	res, err := run1(r, Req{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
	if err != nil || res.N != n || !bytes.Equal(b.bytes(t), f.data) {
		t.Errorf("%+v, %v", res, err)
	}
	for _, s := range r.pool.slabs {
		if s.mapping != nil {
			t.Errorf("the slab at %v was pinned in place", s.addr)
		}
	}
}
