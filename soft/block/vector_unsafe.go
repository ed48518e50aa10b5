package block

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxVec is IOV_MAX, the most segments of one system call.
const maxVec = 1024

// A vector is segments for preadv and pwritev.
type vector struct {
	iov  []unix.Iovec
	left []unix.Iovec // the part of iov that was not moved yet
}

func (v *vector) set(segs [][]byte) {
	v.iov = v.iov[:0]
	for _, seg := range segs {
		if len(seg) > 0 {
			v.iov = append(v.iov, unix.Iovec{Base: &seg[0], Len: uint64(len(seg))})
		}
	}
	v.left = v.iov
}

// fits reports whether the segments are aligned for direct I/O.
func (v *vector) fits(off int64, a align) bool {
	if uintptr(off)%a.offset != 0 {
		return false
	}
	for i := range v.left {
		if uintptr(unsafe.Pointer(v.left[i].Base))%a.memory != 0 || uintptr(v.left[i].Len)%a.offset != 0 {
			return false
		}
	}
	return true
}

// advance drops n bytes from the front.
func (v *vector) advance(n int) {
	for n > 0 {
		first := &v.left[0]
		if k := int(first.Len); n >= k {
			v.left = v.left[1:]
			n -= k
			continue
		}
		first.Base = (*byte)(unsafe.Add(unsafe.Pointer(first.Base), n))
		first.Len -= uint64(n)
		return
	}
}

// call runs preadv or pwritev, by number, on the rest.
func (v *vector) call(trap uintptr, fd int, off int64) (int, error) {
	iov := v.left[:min(len(v.left), maxVec)]
	for {
		n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)), uintptr(off), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
