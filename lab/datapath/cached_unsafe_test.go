package datapath

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cached counts the bytes of a file that are in the page cache. Reading with
// RWF_NOWAIT would start the very reads that it is to find.
func cached(t *testing.T, name string) int64 {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	const page = 4096
	resident := make([]byte, (len(mem)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&resident[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	var n int64
	for _, r := range resident {
		n += int64(r&1) * page
	}
	return n
}
