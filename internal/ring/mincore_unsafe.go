package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// warmByMincore is for kernels before 6.5, which have no cachestat. Mapping the
// range costs some microseconds.
func warmByMincore(fd int, off, n int64) bool {
	from := down(off, page)
	m, err := unix.Mmap(fd, from, int(off+n-from), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return true
	}
	defer unix.Munmap(m)
	var pages [1024]byte
	resident, total := 0, (len(m)+page-1)/page
	for at := 0; at < total; at += len(pages) {
		part := pages[:min(len(pages), total-at)]
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[at*page])), uintptr(len(part)*page), uintptr(unsafe.Pointer(&part[0])))
		if errno != 0 {
			return true
		}
		for _, p := range part {
			resident += int(p & 1)
		}
	}
	return 2*resident >= total
}
