package nvfs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// On tmpfs, which has no block map, pages that exist are found without a look at the rest
// of the file, and holes between them are still holes.
func TestExtentsOfTmpfs(t *testing.T) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skipf("needs tmpfs at /dev/shm: %v", err)
	}
	f, err := os.CreateTemp("/dev/shm", "extents")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const block = abi.BLOCK_SIZE
	for _, at := range []int64{0, 1, 2, 5, 9} { // blocks with data
		if _, err := f.WriteAt(make([]byte, block), at*block); err != nil {
			t.Fatal(err)
		}
	}
	e := &extents{fd: int(f.Fd()), open: true, noMap: true, inMemory: true}
	for _, c := range []struct {
		at, most int64
		data     bool
		n        int64
	}{
		{0, 3, true, 3},
		{0, 2, true, 2},
		{0, 8, true, 3},
		{1, 1, true, 1},
		{3, 4, false, 2},
		{4, 1, false, 1},
		{5, 1, true, 1},
		{5, 4, true, 1},
		{9, 1, true, 1},
		{9, 4, true, 1},
	} {
		data, n, err := e.next(c.at*block, c.most)
		if err != nil || data != c.data || n != c.n {
			t.Errorf("%d blocks at %d: %v, %d, %v; want %v, %d", c.most, c.at, data, n, err, c.data, c.n)
		}
	}
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &unix.Cachestat_t{}, 0); err != nil {
		t.Skipf("needs cachestat, Linux 6.5: %v", err)
	}
	if !e.present(0, 3*block) || e.present(0, 4*block) || e.present(3*block, 4*block) {
		t.Error("pages that exist are not told from holes")
	}
}
