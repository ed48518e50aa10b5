// Package libnvm mirrors the ioctl interface of the kernel module of
// ssd-gpu-dma, which maps memory for an NVMe controller, and the controller's
// registers into the process.
package libnvm

import (
	"structs"
	"unsafe"
)

// Path is the device node of controller n: fmt.Sprintf(Path, n).
const Path = "/dev/libnvm%d"

// MaxControllers is the largest number of device nodes: 8 by default, 64 in BaM's
// module.
const MaxControllers = 64

// Requests, from module/ioctl.h.
const (
	NVM_MAP_HOST_MEMORY   = 0x40188001 // _IOW(0x80, 1, struct nvm_ioctl_map)
	NVM_MAP_DEVICE_MEMORY = 0x40188002 // _IOW(0x80, 2, struct nvm_ioctl_map)
	NVM_UNMAP_MEMORY      = 0x40088003 // _IOW(0x80, 3, uint64_t)
)

// Page sizes, to which the module rounds addresses down.
const (
	HOST_PAGE_SIZE = 1 << 12
	GPU_PAGE_SIZE  = 1 << 16
)

// Map is struct nvm_ioctl_map.
type Map struct {
	_          structs.HostLayout
	VaddrStart uint64
	NPages     uint64
	Ioaddrs    unsafe.Pointer // to NPages words, which the module fills
}

// The module copies exactly this number of bytes.
var _ [24]byte = [unsafe.Sizeof(Map{})]byte{}
