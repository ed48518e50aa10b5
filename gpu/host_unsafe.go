package gpu

import "unsafe"

// HostBytes is n bytes of pinned or managed memory at a, which the CPU must be
// able to access ([Pointer.Host]). The slice is valid until the memory is freed;
// an access after that faults.
func HostBytes(a Addr, n uint64) []byte {
	return unsafe.Slice((*byte)(hostPointer(a)), n)
}

// hostPointer converts a driver's address to a pointer. The address is not of a
// Go object, so the conversion is safe; going through memory avoids a false
// warning of vet. It is not inlined, because Go 1.26 would then fail to compile a
// small copy to the result.
//
//go:noinline
func hostPointer(a Addr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a))
}

// HostAddr is the address of the first byte of b, which is registered memory or
// comes from HostBytes. It does not keep b alive.
func HostAddr(b []byte) Addr {
	return Addr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
