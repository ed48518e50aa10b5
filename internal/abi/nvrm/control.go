package nvrm

import (
	"structs"
	"unsafe"
)

// Control commands of a client, for NVOS54Parameters.Cmd.
const (
	NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2             = 0x205
	NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD    = 0x3d05
	NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD  = 0x3d06
	NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD   = 0x3d0b
	NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD = 0x3d0c
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

// ExportObjectToFDParams is NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS.
type ExportObjectToFDParams struct {
	_      structs.HostLayout
	Object ExportObject
	FD     int32 // in: an unused open file of /dev/nvidiactl
	Flags  uint32
}

// ImportObjectFromFDParams is NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS.
type ImportObjectFromFDParams struct {
	_      structs.HostLayout
	FD     int32
	Object ExportObject
}

// Limits of the plural commands.
const (
	NV0000_OS_UNIX_EXPORT_OBJECT_FD_BUFFER_SIZE          = 64
	NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_MAX_OBJECTS = 512
	NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_TO_FD_MAX_OBJECTS = 128
	NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_NONE      = 0
	NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_VIDMEM    = 1
)

// ExportObjectsToFDParams is NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS.
type ExportObjectsToFDParams struct {
	_          structs.HostLayout
	FD         int32
	HDevice    Handle
	MaxObjects uint16 // used by the first call on a descriptor
	Metadata   [NV0000_OS_UNIX_EXPORT_OBJECT_FD_BUFFER_SIZE]byte
	Pad0       [2]byte
	Objects    [NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_MAX_OBJECTS]Handle
	NumObjects uint16
	Index      uint16
}

// ImportObjectsFromFDParams is
// NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS.
type ImportObjectsFromFDParams struct {
	_           structs.HostLayout
	FD          int32
	HParent     Handle
	Objects     [NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_TO_FD_MAX_OBJECTS]Handle
	ObjectTypes [NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_TO_FD_MAX_OBJECTS]uint8 // out
	NumObjects  uint16
	Index       uint16
}

// The driver rejects parameters of another size.
var (
	_ [32]byte   = [unsafe.Sizeof(GPUGetIDInfoV2Params{})]byte{}
	_ [16]byte   = [unsafe.Sizeof(ExportObject{})]byte{}
	_ [24]byte   = [unsafe.Sizeof(ExportObjectToFDParams{})]byte{}
	_ [20]byte   = [unsafe.Sizeof(ImportObjectFromFDParams{})]byte{}
	_ [2128]byte = [unsafe.Sizeof(ExportObjectsToFDParams{})]byte{}
	_ [652]byte  = [unsafe.Sizeof(ImportObjectsFromFDParams{})]byte{}
)
