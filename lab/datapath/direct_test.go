package datapath

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
)

// TestColdReadIsDirect reads a cold file from odd offsets. The bytes are right, and
// the page cache holds what the opener intended: nothing but the ends of a file opened
// with O_DIRECT, for which the drive's own alignment was found, and all that was read
// of one opened plainly.
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
	mem := w.buffer(size)
	// Plainly first: reads with O_DIRECT teach how fast the drive is without the cache.
	for _, flags := range []int{os.O_RDONLY, os.O_RDONLY | unix.O_DIRECT} {
		h := w.register(name, flags)
		if err := h.Require(0, route.Ring); err != nil {
			t.Fatal(err)
		}
		for _, off := range []int64{0, 1, 512, int64(sector), 5000, 1<<20 + 512} {
			dropCache(name)
			n := uint64(4<<20 - 100)
			rc, err := h.ReadAt(t.Context(), mem.Slice(0, n), off)
			if err != nil || uint64(rc.Bytes) != n {
				t.Fatalf("read at %d: %v, %v", off, &rc, err)
			}
			equal(t, "the GPU", w.bytes(mem.Slice(0, n)), data[off:off+int64(n)])
			got := cached(t, name)
			if direct := flags != os.O_RDONLY; direct && got > 1<<20 || !direct && got < int64(n) {
				t.Errorf("a read at %d with O_DIRECT %v left %d bytes in the page cache", off, direct, got)
			}
		}
	}
}
