package shared

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory has several mappings of the same bytes, from a file or without one.
func TestAgain(t *testing.T) {
	const n = 8 << 20
	t.Run("file", func(t *testing.T) { again(t, n) })
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n - 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Run("limit on the size of files", func(t *testing.T) { again(t, n) })
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
}

func again(t *testing.T, n uint64) {
	a, err := New("test", n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Again(a)
	if err != nil {
		t.Fatal(err)
	}
	a[5], a[n-1] = 1, 2
	if b[5] != 1 || b[n-1] != 2 {
		t.Error("the second mapping has other bytes")
	}
	page := uint64(unix.Getpagesize())
	c, err := New("other", 2*page)
	if err != nil {
		t.Fatal(err)
	}
	if err := AgainAt(a[n-page:], unsafe.Pointer(&c[page]), unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if c[2*page-1] != 2 || c[page-1] != 0 {
		t.Error("a part was mapped to another place")
	}
	for _, m := range [][]byte{a, b, c} {
		if err := Unmap(m); err != nil {
			t.Error(err)
		}
	}
}
