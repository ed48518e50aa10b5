// Package vfio mirrors the parts of Linux's vfio interface (linux/vfio.h) that
// drive a PCI device from user space.
package vfio

import (
	"structs"
	"unsafe"
)

// A Request is the number of an ioctl: _IO(';', 100 + n).
type Request uintptr

const (
	VFIO_GET_API_VERSION        Request = 0x3B64
	VFIO_CHECK_EXTENSION        Request = 0x3B65
	VFIO_SET_IOMMU              Request = 0x3B66
	VFIO_GROUP_GET_STATUS       Request = 0x3B67
	VFIO_GROUP_SET_CONTAINER    Request = 0x3B68
	VFIO_GROUP_GET_DEVICE_FD    Request = 0x3B6A
	VFIO_DEVICE_GET_INFO        Request = 0x3B6B
	VFIO_DEVICE_GET_REGION_INFO Request = 0x3B6C
	VFIO_DEVICE_GET_IRQ_INFO    Request = 0x3B6D
	VFIO_DEVICE_SET_IRQS        Request = 0x3B6E
	VFIO_DEVICE_RESET           Request = 0x3B6F
	VFIO_IOMMU_GET_INFO         Request = 0x3B70
	VFIO_IOMMU_MAP_DMA          Request = 0x3B71
	VFIO_IOMMU_UNMAP_DMA        Request = 0x3B72
)

var requestNames = map[Request]string{
	VFIO_GET_API_VERSION:        "VFIO_GET_API_VERSION",
	VFIO_CHECK_EXTENSION:        "VFIO_CHECK_EXTENSION",
	VFIO_SET_IOMMU:              "VFIO_SET_IOMMU",
	VFIO_GROUP_GET_STATUS:       "VFIO_GROUP_GET_STATUS",
	VFIO_GROUP_SET_CONTAINER:    "VFIO_GROUP_SET_CONTAINER",
	VFIO_GROUP_GET_DEVICE_FD:    "VFIO_GROUP_GET_DEVICE_FD",
	VFIO_DEVICE_GET_INFO:        "VFIO_DEVICE_GET_INFO",
	VFIO_DEVICE_GET_REGION_INFO: "VFIO_DEVICE_GET_REGION_INFO",
	VFIO_DEVICE_GET_IRQ_INFO:    "VFIO_DEVICE_GET_IRQ_INFO",
	VFIO_DEVICE_SET_IRQS:        "VFIO_DEVICE_SET_IRQS",
	VFIO_DEVICE_RESET:           "VFIO_DEVICE_RESET",
	VFIO_IOMMU_GET_INFO:         "VFIO_IOMMU_GET_INFO",
	VFIO_IOMMU_MAP_DMA:          "VFIO_IOMMU_MAP_DMA",
	VFIO_IOMMU_UNMAP_DMA:        "VFIO_IOMMU_UNMAP_DMA",
}

func (r Request) String() string { return requestNames[r] }

// Flags, indices and versions.
const (
	VFIO_API_VERSION                     = 0
	VFIO_TYPE1v2_IOMMU                   = 3
	VFIO_GROUP_FLAGS_VIABLE              = 1 << 0
	VFIO_DEVICE_FLAGS_RESET              = 1 << 0
	VFIO_DEVICE_FLAGS_PCI                = 1 << 1
	VFIO_REGION_INFO_FLAG_MMAP           = 1 << 2
	VFIO_PCI_BAR0_REGION_INDEX           = 0
	VFIO_PCI_CONFIG_REGION_INDEX         = 7
	VFIO_PCI_MSIX_IRQ_INDEX              = 2
	VFIO_IRQ_SET_DATA_NONE               = 1 << 0
	VFIO_IRQ_SET_DATA_EVENTFD            = 1 << 2
	VFIO_IRQ_SET_ACTION_TRIGGER          = 1 << 5
	VFIO_DMA_MAP_FLAG_READ               = 1 << 0
	VFIO_DMA_MAP_FLAG_WRITE              = 1 << 1
	VFIO_IOMMU_INFO_CAPS                 = 1 << 1
	VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE = 1
)

// GroupStatus is struct vfio_group_status.
type GroupStatus struct {
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
}

// DeviceInfo is struct vfio_device_info.
type DeviceInfo struct {
	_          structs.HostLayout
	Argsz      uint32
	Flags      uint32
	NumRegions uint32
	NumIRQs    uint32
}

// RegionInfo is struct vfio_region_info.
type RegionInfo struct {
	_         structs.HostLayout
	Argsz     uint32
	Flags     uint32
	Index     uint32
	CapOffset uint32
	Size      uint64
	Offset    uint64
}

// IRQInfo is struct vfio_irq_info.
type IRQInfo struct {
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
	Index uint32
	Count uint32
}

// IRQSet is struct vfio_irq_set, before its data.
type IRQSet struct {
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
	Index uint32
	Start uint32
	Count uint32
}

// DMAMap is struct vfio_iommu_type1_dma_map.
type DMAMap struct {
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
	Vaddr uint64
	Iova  uint64
	Size  uint64
}

// DMAUnmap is struct vfio_iommu_type1_dma_unmap.
type DMAUnmap struct {
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
	Iova  uint64
	Size  uint64
}

// IOMMUInfo is struct vfio_iommu_type1_info.
type IOMMUInfo struct {
	_           structs.HostLayout
	Argsz       uint32
	Flags       uint32
	IovaPgsizes uint64
	CapOffset   uint32
	Pad         uint32
}

// CapHeader is struct vfio_info_cap_header.
type CapHeader struct {
	_       structs.HostLayout
	ID      uint16
	Version uint16
	Next    uint32
}

// IOVACap is struct vfio_iommu_type1_info_cap_iova_range, before its ranges.
type IOVACap struct {
	_        structs.HostLayout
	Header   CapHeader
	NrIovas  uint32
	Reserved uint32
}

// IOVARange is struct vfio_iova_range.
type IOVARange struct {
	_     structs.HostLayout
	Start uint64
	End   uint64 // the last address
}

// The kernel requires Argsz to be at least the size of the fields that it knows.
var (
	_ [8]byte  = [unsafe.Sizeof(GroupStatus{})]byte{}
	_ [16]byte = [unsafe.Sizeof(DeviceInfo{})]byte{}
	_ [32]byte = [unsafe.Sizeof(RegionInfo{})]byte{}
	_ [16]byte = [unsafe.Sizeof(IRQInfo{})]byte{}
	_ [20]byte = [unsafe.Sizeof(IRQSet{})]byte{}
	_ [32]byte = [unsafe.Sizeof(DMAMap{})]byte{}
	_ [24]byte = [unsafe.Sizeof(DMAUnmap{})]byte{}
	_ [24]byte = [unsafe.Sizeof(IOMMUInfo{})]byte{}
	_ [16]byte = [unsafe.Sizeof(IOVACap{})]byte{}
	_ [16]byte = [unsafe.Sizeof(IOVARange{})]byte{}
)
