package datapath

import (
	"os"

	"golang.org/x/sys/unix"
)

// dropCache makes the kernel forget a file, so that the next read goes to the
// drive. A file that is gone has nothing to forget.
func dropCache(name string) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	forget(f)
}

func forget(f *os.File) { unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
