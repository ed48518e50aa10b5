package gpu

import "unsafe"

// HostBytes is the CPU's view of n bytes of pinned or managed memory at a.
// The slice is not the garbage collector's: it is valid until the memory is
// freed, and using it after that is a fault. a must be an address that the CPU
// can reach ([Pointer.Host] says so).
func HostBytes(a Addr, n uint64) []byte {
	return unsafe.Slice((*byte)(hostPointer(a)), n)
}

// hostPointer turns a driver's address into a pointer. The address never
// belonged to a Go object, so the rules against uintptr arithmetic do not bite;
// the detour through memory keeps vet from suspecting that they do. It is not
// inlined because the compiler (1.26) would undo the detour and then fail on a
// small copy to the result, whose address it takes for an integer.
//
//go:noinline
func hostPointer(a Addr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a))
}

// HostAddr is the address of the first byte of b, for memory that was
// registered or comes from HostBytes. It does not keep b alive.
func HostAddr(b []byte) Addr {
	return Addr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
