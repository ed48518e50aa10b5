package nvrm

import (
	"structs"
	"unsafe"
)

// Classes of objects, for NVOS64Parameters.HClass.
const (
	NV01_ROOT          = 0x0
	NV01_ROOT_NON_PRIV = 0x1
	NV01_ROOT_CLIENT   = 0x41
	NV01_DEVICE_0      = 0x80
)

// NV0080AllocParameters is NV0080_ALLOC_PARAMETERS, for NV01_DEVICE_0.
type NV0080AllocParameters struct {
	_               structs.HostLayout
	DeviceID        uint32 // the device instance of [GPUGetIDInfoV2Params]
	HClientShare    Handle
	HTargetClient   Handle
	HTargetDevice   Handle
	Flags           uint32
	Pad0            [4]byte
	VASpaceSize     uint64
	VAStartInternal uint64
	VALimitInternal uint64
	VAMode          uint32
	Pad1            [4]byte
}

// NV_DEVICE_ALLOCATION_VAMODE_MULTIPLE_VASPACES is a value of
// NV0080AllocParameters.VAMode.
const NV_DEVICE_ALLOCATION_VAMODE_MULTIPLE_VASPACES = 2

var _ [56]byte = [unsafe.Sizeof(NV0080AllocParameters{})]byte{}
