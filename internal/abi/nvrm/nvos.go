package nvrm

import (
	"structs"
	"unsafe"
)

// A Handle is an NvHandle: a client's number for one of its objects. The driver
// chooses that of the client itself. The client chooses the others, or passes 0
// to let the driver choose.
type Handle uint32

// NVOS00Parameters is NVOS00_PARAMETERS, the argument of NV_ESC_RM_FREE.
type NVOS00Parameters struct {
	_             structs.HostLayout
	HRoot         Handle
	HObjectParent Handle
	HObjectOld    Handle
	Status        Status // out
}

// NVOS33Parameters is NVOS33_PARAMETERS.
type NVOS33Parameters struct {
	_              structs.HostLayout
	HClient        Handle
	HDevice        Handle
	HMemory        Handle
	Pad0           [4]byte
	Offset         uint64
	Length         uint64
	PLinearAddress uint64 // out: the bus address, which names the mapping for NV_ESC_RM_UNMAP_MEMORY
	Status         Status // out
	Flags          uint32 // in and out
}

// NVOS33ParametersWithFD is nv_ioctl_nvos33_parameters_with_fd, the argument
// of NV_ESC_RM_MAP_MEMORY.
type NVOS33ParametersWithFD struct {
	_      structs.HostLayout
	Params NVOS33Parameters
	FD     int32 // in: an open file of the GPU's device node without a mapping
	Pad0   [4]byte
}

// Fields of NVOS33Parameters.Flags as the driver returns them.
const (
	NVOS33_FLAGS_MAPPING_REFLECTED          = 2 << 15
	NVOS33_FLAGS_CACHING_TYPE_WRITECOMBINED = 2 << 23
)

// NVOS34Parameters is NVOS34_PARAMETERS, the argument of
// NV_ESC_RM_UNMAP_MEMORY.
type NVOS34Parameters struct {
	_              structs.HostLayout
	HClient        Handle
	HDevice        Handle
	HMemory        Handle
	Pad0           [4]byte
	PLinearAddress uint64
	Status         Status // out
	Flags          uint32
}

// NVOS54Parameters is NVOS54_PARAMETERS, the argument of NV_ESC_RM_CONTROL.
type NVOS54Parameters struct {
	_          structs.HostLayout
	HClient    Handle
	HObject    Handle
	Cmd        uint32
	Flags      uint32
	Params     uint64 // address
	ParamsSize uint32
	Status     Status // out
}

// NVOS55Parameters is NVOS55_PARAMETERS, the argument of NV_ESC_RM_DUP_OBJECT.
type NVOS55Parameters struct {
	_          structs.HostLayout
	HClient    Handle
	HParent    Handle
	HObject    Handle // in and out
	HClientSrc Handle
	HObjectSrc Handle
	Flags      uint32
	Status     Status // out
}

// NVOS64Parameters is NVOS64_PARAMETERS, the argument of NV_ESC_RM_ALLOC.
type NVOS64Parameters struct {
	_                structs.HostLayout
	HRoot            Handle
	HObjectParent    Handle
	HObjectNew       Handle // in and out
	HClass           uint32
	PAllocParms      uint64 // address
	PRightsRequested uint64 // address
	ParamsSize       uint32
	Flags            uint32
	Status           Status // out
	Pad0             [4]byte
}

// The driver rejects any other size.
var (
	_ [16]byte = [unsafe.Sizeof(NVOS00Parameters{})]byte{}
	_ [48]byte = [unsafe.Sizeof(NVOS33Parameters{})]byte{}
	_ [56]byte = [unsafe.Sizeof(NVOS33ParametersWithFD{})]byte{}
	_ [32]byte = [unsafe.Sizeof(NVOS34Parameters{})]byte{}
	_ [32]byte = [unsafe.Sizeof(NVOS54Parameters{})]byte{}
	_ [28]byte = [unsafe.Sizeof(NVOS55Parameters{})]byte{}
	_ [48]byte = [unsafe.Sizeof(NVOS64Parameters{})]byte{}
)
