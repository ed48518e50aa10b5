package nvrm

import (
	"structs"
	"unsafe"
)

// Control commands of a client, for NVOS54Parameters.Cmd.
const (
	NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2            = 0x205
	NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD = 0x3d06
)

// GPUGetIDInfoV2Params is NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS.
type GPUGetIDInfoV2Params struct {
	_                 structs.HostLayout
	GPUID             uint32 // in
	GPUFlags          uint32
	DeviceInstance    uint32
	SubDeviceInstance uint32
	SLIStatus         uint32
	BoardID           uint32
	GPUInstance       uint32
	NUMAID            int32
}

// ExportObject is NV0000_CTRL_OS_UNIX_EXPORT_OBJECT with the only member of
// its union.
type ExportObject struct {
	_       structs.HostLayout
	Type    uint32
	HDevice Handle
	HParent Handle
	HObject Handle // for an import: in and out
}

// NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM is the value of ExportObject.Type.
const NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM = 1

// ImportObjectFromFDParams is NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS.
type ImportObjectFromFDParams struct {
	_      structs.HostLayout
	FD     int32
	Object ExportObject
}

// The driver rejects parameters of another size.
var (
	_ [32]byte = [unsafe.Sizeof(GPUGetIDInfoV2Params{})]byte{}
	_ [16]byte = [unsafe.Sizeof(ExportObject{})]byte{}
	_ [20]byte = [unsafe.Sizeof(ImportObjectFromFDParams{})]byte{}
)
