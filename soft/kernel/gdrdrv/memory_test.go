package gdrdrv_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// readOnly is a copy of bytes in memory that cannot be written.
func readOnly(t *testing.T, b []byte) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, 4096, rw, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	copy(m, b)
	if err := unix.Mprotect(m, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	return m
}
