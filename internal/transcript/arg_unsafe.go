package transcript

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

const page = 4096

// argRoom is the largest argument.
const argRoom = 1 << 20

// argMemory is the memory for arguments of ioctls. It ends at an inaccessible
// page. A filler around each argument shows stray writes.
type argMemory struct {
	mem        []byte // with the inaccessible page
	start, end int    // of the current argument
}

const filler = 0xa5

func newArgMemory() (*argMemory, error) {
	mem, err := unix.Mmap(-1, 0, argRoom+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	a := &argMemory{mem: mem}
	if err := unix.Mprotect(mem[argRoom+page:], unix.PROT_NONE); err != nil {
		return nil, err
	}
	return a, nil
}

// place copies an argument into the memory, at its end or in the middle.
func (a *argMemory) place(in []byte, atEnd bool) (unsafe.Pointer, error) {
	if len(in) > argRoom/2 {
		return nil, fmt.Errorf("argument of %d bytes exceeds %d", len(in), argRoom/2)
	}
	end := argRoom + page
	if !atEnd {
		end = argRoom/2 + len(in)
	}
	a.start, a.end = end-len(in), end
	for _, side := range a.around() {
		for i := range side {
			side[i] = filler
		}
	}
	copy(a.mem[a.start:], in)
	return unsafe.Pointer(&a.mem[a.start]), nil
}

// around is the accessible memory around the argument, a page on each side.
func (a *argMemory) around() [2][]byte {
	return [2][]byte{a.mem[a.start-page : a.start], a.mem[a.end:min(a.end+page, argRoom+page)]}
}

// result is the argument after a call. It fails if memory around it changed.
func (a *argMemory) result() ([]byte, error) {
	for _, side := range a.around() {
		for i, b := range side {
			if b != filler {
				return nil, fmt.Errorf("byte %d beside the argument was written", i)
			}
		}
	}
	return bytes.Clone(a.mem[a.start:a.end]), nil
}

// bad is an address that cannot be read.
func (a *argMemory) bad() unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(&a.mem[0]), argRoom+page+8)
}

func (a *argMemory) close() error { return unix.Munmap(a.mem) }

// touch runs fn and reports whether a memory access of it faulted.
func touch(fn func()) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	fn()
	return false
}
