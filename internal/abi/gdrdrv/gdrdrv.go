// Package gdrdrv mirrors the ioctl interface of gdrdrv, GDRCopy's kernel
// module, as of version 2.6.
package gdrdrv

import (
	"structs"
	"unsafe"
)

// Path is the module's device node; ParamsPath has its parameters.
const (
	Path       = "/dev/gdrdrv"
	ParamsPath = "proc/driver/gdrdrv/params"
)

// Requests, from gdrdrv.h. Most encode size 8 whatever the size of their struct
// is, because the macro was given a pointer.
const (
	GDRDRV_IOCTL                 = 0xDA
	GDRDRV_IOC_PIN_BUFFER        = 0xC028DA01
	GDRDRV_IOC_UNPIN_BUFFER      = 0xC008DA02
	GDRDRV_IOC_GET_CB_FLAG       = 0xC008DA03
	GDRDRV_IOC_GET_INFO          = 0xC008DA04
	GDRDRV_IOC_GET_INFO_V2       = 0xC008DA05 // from 2.4
	GDRDRV_IOC_GET_ATTR          = 0xC008DA06 // from 2.5, as the next two
	GDRDRV_IOC_PIN_BUFFER_V2     = 0xC020DA07
	GDRDRV_IOC_REQ_MAPPING_TYPE  = 0xC008DA08
	GDRDRV_IOC_GET_VERSION       = 0xC008DAFF
	GDRDRV_VERSION               = 2<<16 | 6
	MINIMUM_GDR_API_VERSION      = 2 << 16
	GDRDRV_PIN_FLAG_FORCE_PCIE   = 1
	GDRDRV_ATTR_USE_PERSISTENT   = 1 // whether pins outlive the owner's free
	GDRDRV_ATTR_SUPPORT_PIN_PCIE = 2 // whether the flag above is known
)

// A MappingType is how the CPU caches a mapping: gdr_mapping_type_t.
type MappingType uint32

const (
	GDR_MAPPING_TYPE_NONE    MappingType = 0
	GDR_MAPPING_TYPE_WC      MappingType = 1
	GDR_MAPPING_TYPE_CACHING MappingType = 2
	GDR_MAPPING_TYPE_DEVICE  MappingType = 3
)

const (
	GPU_PAGE_SHIFT = 16
	GPU_PAGE_SIZE  = 1 << GPU_PAGE_SHIFT
	// HOST_PAGE is the unit of handles: a handle is the page offset at which
	// its memory is mapped.
	HOST_PAGE = 4096
)

// PinBufferParams is struct GDRDRV_IOC_PIN_BUFFER_PARAMS.
type PinBufferParams struct {
	_        structs.HostLayout
	Addr     uint64
	Size     uint64
	P2PToken uint64 // 0
	VASpace  uint32 // 0
	Pad0     [4]byte
	Handle   uint64 // out
}

// PinBufferParamsV2 is struct GDRDRV_IOC_PIN_BUFFER_V2_PARAMS.
type PinBufferParamsV2 struct {
	_      structs.HostLayout
	Addr   uint64
	Size   uint64
	Flags  uint32
	Pad0   [4]byte
	Handle uint64 // out
}

// UnpinBufferParams is struct GDRDRV_IOC_UNPIN_BUFFER_PARAMS.
type UnpinBufferParams struct {
	_      structs.HostLayout
	Handle uint64
}

// GetCBFlagParams is struct GDRDRV_IOC_GET_CB_FLAG_PARAMS.
type GetCBFlagParams struct {
	_      structs.HostLayout
	Handle uint64
	Flag   uint32 // out: 1 if the pages were revoked
	Pad0   [4]byte
}

// GetInfoParams is struct GDRDRV_IOC_GET_INFO_PARAMS.
type GetInfoParams struct {
	_          structs.HostLayout
	Handle     uint64
	VA         uint64 // out, as all that follow
	MappedSize uint64
	PageSize   uint32
	TscKHz     uint32
	TmCycles   uint64 // that the pin took
	Mapped     uint32
	WCMapping  uint32
}

// GetInfoParamsV2 is struct GDRDRV_IOC_GET_INFO_V2_PARAMS.
type GetInfoParamsV2 struct {
	_           structs.HostLayout
	Handle      uint64
	VA          uint64 // out, as all that follow
	MappedSize  uint64
	PageSize    uint32
	TscKHz      uint32
	TmCycles    uint64
	MappingType MappingType
	Pad0        [4]byte
}

// GetAttrParams is struct GDRDRV_IOC_GET_ATTR_PARAMS.
type GetAttrParams struct {
	_    structs.HostLayout
	Attr uint32
	Val  uint32 // out
}

// ReqMappingTypeParams is struct GDRDRV_IOC_REQ_MAPPING_TYPE_PARAMS.
type ReqMappingTypeParams struct {
	_           structs.HostLayout
	Handle      uint64
	MappingType MappingType
	Pad0        [4]byte
}

// GetVersionParams is struct GDRDRV_IOC_GET_VERSION_PARAMS.
type GetVersionParams struct {
	_                    structs.HostLayout
	GdrdrvVersion        uint32 // out: major<<16 | minor
	MinimumGdrAPIVersion uint32 // out
}

// The module copies exactly this number of bytes.
var (
	_ [40]byte = [unsafe.Sizeof(PinBufferParams{})]byte{}
	_ [32]byte = [unsafe.Sizeof(PinBufferParamsV2{})]byte{}
	_ [8]byte  = [unsafe.Sizeof(UnpinBufferParams{})]byte{}
	_ [16]byte = [unsafe.Sizeof(GetCBFlagParams{})]byte{}
	_ [48]byte = [unsafe.Sizeof(GetInfoParams{})]byte{}
	_ [48]byte = [unsafe.Sizeof(GetInfoParamsV2{})]byte{}
	_ [8]byte  = [unsafe.Sizeof(GetAttrParams{})]byte{}
	_ [16]byte = [unsafe.Sizeof(ReqMappingTypeParams{})]byte{}
	_ [8]byte  = [unsafe.Sizeof(GetVersionParams{})]byte{}
)

// ArgSize is the number of bytes that the module copies for a request, or 0 for
// unknown requests.
func ArgSize(req uintptr) int {
	switch req {
	case GDRDRV_IOC_PIN_BUFFER:
		return 40
	case GDRDRV_IOC_PIN_BUFFER_V2:
		return 32
	case GDRDRV_IOC_GET_CB_FLAG, GDRDRV_IOC_REQ_MAPPING_TYPE:
		return 16
	case GDRDRV_IOC_GET_INFO, GDRDRV_IOC_GET_INFO_V2:
		return 48
	case GDRDRV_IOC_UNPIN_BUFFER, GDRDRV_IOC_GET_ATTR, GDRDRV_IOC_GET_VERSION:
		return 8
	}
	return 0
}
