package storage

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFetch: what was fetched is in the page cache, wherever the range begins and ends.
func TestFetch(t *testing.T) {
	const size = 9<<20 + 5000
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Range{{0, size}, {0, 4096}, {5000, 3 << 20}, {3<<20 + 1, 9 << 20}, {9 << 20, size}, {size - 1, size}} {
		dropFile(t, fd, size)
		var got Residency
		for range 3 { // a kernel short of memory may reclaim a page between the two calls
			if err := Fetch(fd, r.From, r.To-r.From); err != nil {
				t.Skipf("needs a kernel with huge pages: %v", err)
			}
			if got, err = PageCache(fd, r.From, r.To-r.From); err != nil || got.Cached == got.Pages {
				break
			}
		}
		if err != nil || got.Cached < got.Pages {
			t.Errorf("%+v: %+v, %v", r, got, err)
		}
	}
}

// dropFile drops a file from the page cache. The kernel keeps pages that are in use, such as
// one that is still being read. Dropping is repeated until none is left, because Fetch does
// nothing for a huge page whose first page is cached.
func dropFile(t *testing.T, fd int, size int64) {
	t.Helper()
	for range 1000 {
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if got, err := PageCache(fd, 0, size); err != nil {
			t.Fatal(err)
		} else if got.Cached == 0 {
			return
		}
	}
	t.Skip("needs a file system whose pages can be dropped")
}

// TestFetchFails: what cannot be fetched is an error, and no signal.
func TestFetchFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Fetch(int(f.Fd()), 0, 16<<20); err == nil {
		t.Error("fetched what is behind the end of a file")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := Fetch(int(r.Fd()), 0, 4096); err == nil {
		t.Error("fetched a pipe")
	}
}
