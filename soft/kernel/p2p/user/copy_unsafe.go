// Package user copies between the modules of the software kernel and the
// program that calls them. An ioctl's argument is only a number that the
// program has chosen: whatever is wrong with it must end in EFAULT and not in
// the death of the machine.
package user

import (
	"runtime/debug"
	"syscall"
	"unsafe"
)

// page is the unit in which memory is accessible or not.
const page = 4096

// Read copies len(dst) bytes from the program. When some of them cannot be read
// it says how many could, by whole pages, and EFAULT.
func Read(dst []byte, src unsafe.Pointer) (n int, err error) {
	return walk(dst, src, func(part, user []byte) { copy(part, user) })
}

// Write copies src to the program. When some of it cannot be written the bytes
// up to that page are, as a kernel does it, and the error is EFAULT.
func Write(dst unsafe.Pointer, src []byte) (n int, err error) {
	return walk(src, dst, func(part, user []byte) { copy(user, part) })
}

// walk goes over memory of the program, from page to page.
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

// Get copies a struct from the program.
func Get[T any](v *T, arg unsafe.Pointer) error {
	_, err := Read(raw(v), arg)
	return err
}

// Put copies a struct to the program.
func Put[T any](arg unsafe.Pointer, v *T) error {
	_, err := Write(arg, raw(v))
	return err
}

func raw[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
