package nvrm

import (
	"structs"
	"unsafe"
)

// PCIInfo is nv_pci_info_t.
type PCIInfo struct {
	_        structs.HostLayout
	Domain   uint32
	Bus      uint8
	Slot     uint8
	Function uint8
	Pad0     uint8
	VendorID uint16
	DeviceID uint16
}

// CardInfo is nv_ioctl_card_info_t. NV_ESC_CARD_INFO fills an array of them.
type CardInfo struct {
	_             structs.HostLayout
	Valid         uint8
	Pad0          [3]byte
	PCI           PCIInfo
	GPUID         uint32
	InterruptLine uint16
	Pad1          [2]byte
	RegAddress    uint64
	RegSize       uint64
	FBAddress     uint64 // BAR1
	FBSize        uint64
	MinorNumber   uint32
	DevName       [10]byte
	Pad2          [2]byte
}

// RMAPIVersion is nv_ioctl_rm_api_version_t, the argument of
// NV_ESC_CHECK_VERSION_STR.
type RMAPIVersion struct {
	_             structs.HostLayout
	Cmd           uint32
	Reply         uint32 // out
	VersionString [64]byte
}

// Values of RMAPIVersion.Cmd and Reply.
const (
	NV_RM_API_VERSION_CMD_STRICT  = 0
	NV_RM_API_VERSION_CMD_RELAXED = '1'
	NV_RM_API_VERSION_CMD_QUERY   = '2' // fills VersionString, compares nothing

	NV_RM_API_VERSION_REPLY_RECOGNIZED = 1
)

// RegisterFD is nv_ioctl_register_fd_t, the argument of NV_ESC_REGISTER_FD.
type RegisterFD struct {
	_     structs.HostLayout
	CtlFD int32
}

var (
	_ [12]byte = [unsafe.Sizeof(PCIInfo{})]byte{}
	_ [72]byte = [unsafe.Sizeof(CardInfo{})]byte{}
	_ [72]byte = [unsafe.Sizeof(RMAPIVersion{})]byte{}
	_ [4]byte  = [unsafe.Sizeof(RegisterFD{})]byte{}
)
