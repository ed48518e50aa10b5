package datapath

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
)

// TestColdReadIsDirect reads a cold file from odd offsets. The bytes are right,
// and the drive's own alignment was found: what was read is not in the page
// cache, but for the ends.
func TestColdReadIsDirect(t *testing.T) {
	sector, err := strconv.Atoi(inside.Wanted(t, "CULVERT_WANT_SECTOR"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 8 << 20
	name := filepath.Join(t.TempDir(), "f")
	data := aligned(t, size, 8)
	if _, err := cold(t, name).WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	w := newFixture(t)
	h := w.register(name, os.O_RDONLY)
	if err := h.Require(0, route.Ring); err != nil {
		t.Fatal(err)
	}
	mem := w.buffer(size)
	for _, off := range []int64{0, 1, 512, int64(sector), 5000, 1<<20 + 512} {
		dropCache(name)
		n := uint64(4<<20 - 100)
		rc, err := h.ReadAt(t.Context(), mem.Slice(0, n), off)
		if err != nil || uint64(rc.Bytes) != n {
			t.Fatalf("read at %d: %v, %v", off, &rc, err)
		}
		equal(t, "the GPU", w.bytes(mem.Slice(0, n)), data[off:off+int64(n)])
		if got := cached(t, name); got > 1<<20 {
			t.Errorf("a read at %d left %d bytes in the page cache", off, got)
		}
	}
}
