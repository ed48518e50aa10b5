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

// argMemory is where arguments of ioctls lie: memory that ends at a page
// without access. Around an argument it is filled, to find stray writes.
type argMemory struct {
	mem        []byte // with the page
	start, end int    // of the argument that is there
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

// place puts an argument into the memory: at its end, or with room behind.
func (a *argMemory) place(in []byte, atEnd bool) (unsafe.Pointer, error) {
	if len(in) > argRoom/2 {
		return nil, fmt.Errorf("an argument of %d bytes", len(in))
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

// around is a page on either side of the argument, as far as there is one.
func (a *argMemory) around() [2][]byte {
	return [2][]byte{a.mem[a.start-page : a.start], a.mem[a.end:min(a.end+page, argRoom+page)]}
}

// result is the argument after a call. Nothing beside it may have changed.
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

// touch runs fn, which accesses memory that may not be there.
func touch(fn func()) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	fn()
	return false
}
