package libnvm

import (
	"runtime"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/libnvm"
)

func (d *Device) ioctlMap(req uintptr, addr uint64, ioaddrs []uint64) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&ioaddrs[0])
	arg := abi.Map{VaddrStart: addr, NPages: uint64(len(ioaddrs)), Ioaddrs: unsafe.Pointer(&ioaddrs[0])}
	return d.node.Ioctl(req, unsafe.Pointer(&arg))
}

func (d *Device) ioctlUnmap(addr uint64) error {
	return d.node.Ioctl(abi.NVM_UNMAP_MEMORY, unsafe.Pointer(&addr))
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
