// Package user copies between emulated kernel modules and the process that calls
// them. An ioctl's argument is a number that the process chose: an invalid one
// results in EFAULT, not in a crash.
package user

import (
	"runtime/debug"
	"syscall"
	"unsafe"
)

// page is the unit of memory protection.
const page = 4096

// Read copies len(dst) bytes from the process. If some cannot be read, it returns how
// many could, by whole pages, and EFAULT.
func Read(dst []byte, src unsafe.Pointer) (n int, err error) {
	return walk(dst, src, func(part, user []byte) { copy(part, user) })
}

// Write copies src to the process. If some cannot be written, it writes the bytes
// before that page, as a kernel does, and returns EFAULT.
func Write(dst unsafe.Pointer, src []byte) (n int, err error) {
	return walk(src, dst, func(part, user []byte) { copy(user, part) })
}

// walk runs each on memory of the process, page by page.
func walk(ours []byte, theirs unsafe.Pointer, each func(part, user []byte)) (n int, err error) {
	if theirs == nil {
		return 0, syscall.EFAULT
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = syscall.EFAULT
		}
	}()
	for n < len(ours) {
		at := unsafe.Add(theirs, n)
		k := min(len(ours)-n, page-int(uintptr(at)%page))
		each(ours[n:n+k], unsafe.Slice((*byte)(at), k))
		n += k
	}
	return n, nil
}

// Get copies a struct from the process.
func Get[T any](v *T, arg unsafe.Pointer) error {
	_, err := Read(raw(v), arg)
	return err
}

// Put copies a struct to the process.
func Put[T any](arg unsafe.Pointer, v *T) error {
	_, err := Write(arg, raw(v))
	return err
}

func raw[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
