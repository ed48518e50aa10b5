package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// residentByMincore is for kernels without cachestat: those before 6.5, and some
// later ones; and for overlayfs. It counts the pages of a range, and those of them that the page
// cache has. Mapping the range costs some microseconds.
func residentByMincore(fd int, off, n int64) (resident, total int, err error) {
	from := down(off, page)
	m, err := unix.Mmap(fd, from, int(off+n-from), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Munmap(m)
	var marks [1024]byte
	total = (len(m) + page - 1) / page
	for at := 0; at < total; at += len(marks) {
		part := marks[:min(len(marks), total-at)]
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[at*page])), uintptr(len(part)*page), uintptr(unsafe.Pointer(&part[0])))
		if errno != 0 {
			return 0, 0, errno
		}
		for _, mark := range part {
			resident += int(mark & 1)
		}
	}
	return resident, total, nil
}
