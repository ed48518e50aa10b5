package user

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// edge is memory of n bytes that ends at a page without access.
func edge(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	if err := unix.Mprotect(b[2*page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return b[2*page-n:][:n:n]
}

func TestCopies(t *testing.T) {
	for _, n := range []int{1, 8, 100, page, page + 8} {
		mem := edge(t, n)
		at := unsafe.Pointer(&mem[0])
		want := bytes.Repeat([]byte{7, 8, 9}, n)[:n]
		if k, err := Write(at, want); k != n || err != nil || !bytes.Equal(mem, want) {
			t.Errorf("wrote %d of %d bytes, %v", k, n, err)
		}
		got := make([]byte, n)
		if k, err := Read(got, at); k != n || err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d of %d bytes, %v", k, n, err)
		}
		// One byte more is a fault; what lies before it has been moved.
		clear(mem)
		if k, err := Write(at, append(bytes.Clone(want), 1)); !errors.Is(err, syscall.EFAULT) || k != n || !bytes.Equal(mem, want) {
			t.Errorf("wrote %d of %d bytes, %v", k, n+1, err)
		}
		if k, err := Read(make([]byte, n+1), at); !errors.Is(err, syscall.EFAULT) || k != n {
			t.Errorf("read %d of %d bytes, %v", k, n+1, err)
		}
	}
}

func TestNothing(t *testing.T) {
	var v struct{ a, b uint64 }
	if err := Get(&v, nil); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("get from nothing: %v", err)
	}
	if err := Put(nil, &v); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("put to nothing: %v", err)
	}
	w := v
	w.b = 5
	if err := Put(unsafe.Pointer(&v), &w); err != nil || v != w {
		t.Errorf("put: %v, %v", v, err)
	}
}
