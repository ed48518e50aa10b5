package nvrm

import "unsafe"

// From nv_escape.h and nv-ioctl-numbers.h.
const (
	NV_IOCTL_MAGIC = 'F'

	NV_ESC_RM_FREE           = 0x29
	NV_ESC_RM_CONTROL        = 0x2A
	NV_ESC_RM_ALLOC          = 0x2B
	NV_ESC_RM_DUP_OBJECT     = 0x34
	NV_ESC_RM_MAP_MEMORY     = 0x4E
	NV_ESC_RM_UNMAP_MEMORY   = 0x4F
	NV_ESC_CARD_INFO         = 200
	NV_ESC_REGISTER_FD       = 201
	NV_ESC_CHECK_VERSION_STR = 210
)

// Device nodes. The kernel's minor numbers need not be in CUDA's order.
const (
	CtlPath      = "/dev/nvidiactl"
	DevicePrefix = "/dev/nvidia" // followed by the minor
	MaxCards     = 32            // entries in the answer to NV_ESC_CARD_INFO
)

// Request numbers: _IOWR('F', nr, size).
const (
	iowr = 3<<30 | NV_IOCTL_MAGIC<<8

	IoctlFree         = iowr | NV_ESC_RM_FREE | unsafe.Sizeof(NVOS00Parameters{})<<16
	IoctlControl      = iowr | NV_ESC_RM_CONTROL | unsafe.Sizeof(NVOS54Parameters{})<<16
	IoctlAlloc        = iowr | NV_ESC_RM_ALLOC | unsafe.Sizeof(NVOS64Parameters{})<<16
	IoctlDupObject    = iowr | NV_ESC_RM_DUP_OBJECT | unsafe.Sizeof(NVOS55Parameters{})<<16
	IoctlMapMemory    = iowr | NV_ESC_RM_MAP_MEMORY | unsafe.Sizeof(NVOS33ParametersWithFD{})<<16
	IoctlUnmapMemory  = iowr | NV_ESC_RM_UNMAP_MEMORY | unsafe.Sizeof(NVOS34Parameters{})<<16
	IoctlCardInfo     = iowr | NV_ESC_CARD_INFO | unsafe.Sizeof([MaxCards]CardInfo{})<<16
	IoctlRegisterFD   = iowr | NV_ESC_REGISTER_FD | unsafe.Sizeof(RegisterFD{})<<16
	IoctlCheckVersion = iowr | NV_ESC_CHECK_VERSION_STR | unsafe.Sizeof(RMAPIVersion{})<<16
)

// IoctlNumber is the number of a request. The driver uses it and [IoctlSize],
// and no other field.
func IoctlNumber(req uintptr) int { return int(req & 0xff) }

// IoctlSize is the size of the argument of a request.
func IoctlSize(req uintptr) int { return int(req >> 16 & 0x3fff) }
