package storage

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// viewed is a file that has seen enough small reads to be mapped.
func viewed(t *testing.T, data []byte) (*File, *os.File) {
	t.Helper()
	f := tempFile(t, os.O_RDWR, data)
	st := adopt(t, f)
	if _, err := st.Resident(0, 1); errors.Is(err, unix.ENOSYS) {
		t.Skip("needs cachestat(2), Linux 6.5")
	}
	for range viewAfter - 1 {
		if st.View(0, 1, time.Second) != nil {
			t.Fatal("a file was mapped for a few reads")
		}
	}
	return st, f
}

func TestView(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1000) // 16000 bytes: three whole pages
	st, _ := viewed(t, data)
	const now = time.Second
	if got := st.View(4095, 100, now); !bytes.Equal(got, data[4095:4195]) {
		t.Errorf("got %d bytes", len(got))
	}
	for _, c := range [][2]int64{{-1, 5}, {0, 0}, {12287, 2}, {15999, 1}, {1 << 40, 1}} {
		if got := st.View(c[0], c[1], now); got != nil {
			t.Errorf("%v: %d bytes of what is not in whole pages of the file", c, len(got))
		}
	}
	if !st.Holds(16000) || st.Holds(16001) {
		t.Error("Holds does not know the file's size")
	}
}

// A look is trusted for a while, and then taken again.
func TestViewLooksAgain(t *testing.T) {
	st, _ := viewed(t, make([]byte, 8192))
	if st.Facts.FS == "tmpfs" {
		t.Skip("needs a file system on a disk: tmpfs keeps its pages")
	}
	if st.View(0, 10, time.Second) == nil {
		t.Fatal("the file is in the page cache")
	}
	if err := st.DropCache(); err != nil {
		t.Fatal(err)
	}
	if n, _ := st.Resident(0, 8192); n > 0 {
		t.Skip("needs a page cache that lets go of the file")
	}
	if st.View(0, 10, time.Second+viewTrust/2) == nil {
		t.Error("a look was not trusted")
	}
	if st.View(0, 10, time.Second+2*viewTrust) != nil {
		t.Error("the page cache was not looked at again")
	}
}

func TestViewOfAFileThatWasCut(t *testing.T) {
	st, f := viewed(t, make([]byte, 3*4096))
	if st.View(8192, 4096, time.Second) == nil {
		t.Fatal("the file is in the page cache")
	}
	if err := f.Truncate(8192 + 100); err != nil {
		t.Fatal(err)
	}
	if st.Holds(3 * 4096) {
		t.Error("the file was cut, and nothing says so")
	}
}
