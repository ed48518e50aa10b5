package storage

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestResident checks that a file that was just written is cached and that DropCache
// makes it cold, whether or not the descriptor may write.
func TestResident(t *testing.T) {
	for name, flags := range map[string]int{"read-write": os.O_RDWR, "read-only": os.O_RDONLY} {
		t.Run(name, func(t *testing.T) {
			const size = 1 << 20
			st := adopt(t, tempFile(t, flags, make([]byte, size)))
			for _, r := range [][2]int64{{0, size}, {0, 1}, {5000, 8192}, {size - 1, 1}, {7, 0}} {
				n, err := st.Resident(r[0], r[1])
				if errors.Is(err, unix.EPERM) {
					t.Skipf("needs a kernel that tells about the page cache: %v", err)
				}
				if err != nil || n != r[1] {
					t.Fatalf("%d bytes at %d of a file just written: %d are cached, %v", r[1], r[0], n, err)
				}
			}
			if st.Facts.FS == "tmpfs" {
				t.Skip("needs a file system on a disk: tmpfs has nowhere else to keep its pages")
			}
			if err := st.DropCache(); err != nil {
				t.Fatal(err)
			}
			if n, err := st.Resident(0, size); err != nil || n > size/2 {
				t.Errorf("after DropCache %d of %d bytes are cached, %v", n, size, err)
			}
		})
	}
}

// TestMincore checks that mincore counts what cachestat counts.
func TestMincore(t *testing.T) {
	const pages = 3000 // more than one system call's
	st := adopt(t, tempFile(t, os.O_RDWR, make([]byte, pages*pageSize)))
	fd := st.Buffered()
	if n, err := mincorePages(fd, 0, pages); err != nil || n != pages {
		t.Errorf("%d of %d pages, %v", n, pages, err)
	}
	if n, err := mincorePages(fd, pages-5, 5); err != nil || n != 5 {
		t.Errorf("the last 5 pages: %d, %v", n, err)
	}
	if _, err := mincorePages(-1, 0, 1); err == nil {
		t.Error("a descriptor that is not open has cached pages")
	}
	if _, err := PageCache(-1, 0, 1); !errors.Is(err, unix.EBADF) {
		t.Errorf("a descriptor that is not open: %v", err)
	}
	if st.Facts.FS == "tmpfs" || st.DropCache() != nil {
		return
	}
	if n, err := mincorePages(fd, 0, pages); err != nil || n > pages/2 {
		t.Errorf("after DropCache: %d of %d pages, %v", n, pages, err)
	}
}

// TestNoCachestat checks which answers of cachestat count. EPERM is one, for a file
// that the process may not write.
func TestNoCachestat(t *testing.T) {
	st := adopt(t, tempFile(t, os.O_RDWR, []byte("x")))
	for _, tt := range []struct {
		err    error
		cached uint64
		want   bool
	}{
		{unix.ENOSYS, 0, true},
		{unix.EPERM, 0, cachestatForbidden()},
		{unix.EBADF, 0, false},
		{nil, 1, false},
		{nil, 0, st.Facts.FS == "overlay"},
	} {
		if got := noCachestat(st.Buffered(), tt.cached, tt.err); got != tt.want {
			t.Errorf("%v, %d pages: %v, want %v", tt.err, tt.cached, got, tt.want)
		}
	}
}
