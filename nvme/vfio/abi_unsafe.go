package vfio

import (
	"structs"
	"unsafe"
)

// From include/uapi/linux/vfio.h: requests are _IO(';', 100 + n).
const (
	VFIO_GET_API_VERSION         = 0x3B64
	VFIO_CHECK_EXTENSION         = 0x3B65
	VFIO_SET_IOMMU               = 0x3B66
	VFIO_GROUP_GET_STATUS        = 0x3B67
	VFIO_GROUP_SET_CONTAINER     = 0x3B68
	VFIO_GROUP_GET_DEVICE_FD     = 0x3B6A
	VFIO_DEVICE_GET_INFO         = 0x3B6B
	VFIO_DEVICE_GET_REGION_INFO  = 0x3B6C
	VFIO_DEVICE_GET_IRQ_INFO     = 0x3B6D
	VFIO_DEVICE_SET_IRQS         = 0x3B6E
	VFIO_DEVICE_RESET            = 0x3B6F
	VFIO_IOMMU_GET_INFO          = 0x3B70
	VFIO_IOMMU_MAP_DMA           = 0x3B71
	VFIO_IOMMU_UNMAP_DMA         = 0x3B72
	VFIO_API_VERSION             = 0
	VFIO_TYPE1v2_IOMMU           = 3
	VFIO_GROUP_FLAGS_VIABLE      = 1 << 0
	VFIO_DEVICE_FLAGS_RESET      = 1 << 0
	VFIO_DEVICE_FLAGS_PCI        = 1 << 1
	VFIO_REGION_INFO_FLAG_MMAP   = 1 << 2
	VFIO_PCI_BAR0_REGION_INDEX   = 0
	VFIO_PCI_CONFIG_REGION_INDEX = 7
	VFIO_PCI_MSIX_IRQ_INDEX      = 2
	VFIO_IRQ_SET_DATA_NONE       = 1 << 0
	VFIO_IRQ_SET_DATA_EVENTFD    = 1 << 2
	VFIO_IRQ_SET_ACTION_TRIGGER  = 1 << 5
	VFIO_DMA_MAP_FLAG_READ       = 1 << 0
	VFIO_DMA_MAP_FLAG_WRITE      = 1 << 1
	VFIO_IOMMU_INFO_CAPS         = 1 << 1

	VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE = 1
)

type groupStatus struct { // struct vfio_group_status
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
}

type deviceInfo struct { // struct vfio_device_info
	_          structs.HostLayout
	Argsz      uint32
	Flags      uint32
	NumRegions uint32
	NumIRQs    uint32
}

type regionInfo struct { // struct vfio_region_info
	_         structs.HostLayout
	Argsz     uint32
	Flags     uint32
	Index     uint32
	CapOffset uint32
	Size      uint64
	Offset    uint64
}

type irqInfo struct { // struct vfio_irq_info
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
	Index uint32
	Count uint32
}

type irqSet struct { // struct vfio_irq_set, before its data
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
	Index uint32
	Start uint32
	Count uint32
}

type dmaMap struct { // struct vfio_iommu_type1_dma_map
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
	Vaddr uint64
	Iova  uint64
	Size  uint64
}

type dmaUnmap struct { // struct vfio_iommu_type1_dma_unmap
	_     structs.HostLayout
	Argsz uint32
	Flags uint32
	Iova  uint64
	Size  uint64
}

type iommuInfo struct { // struct vfio_iommu_type1_info
	_           structs.HostLayout
	Argsz       uint32
	Flags       uint32
	IovaPgsizes uint64
	CapOffset   uint32
	Pad         uint32
}

type capHeader struct { // struct vfio_info_cap_header
	_       structs.HostLayout
	ID      uint16
	Version uint16
	Next    uint32
}

type iovaCap struct { // struct vfio_iommu_type1_info_cap_iova_range, before its ranges
	_        structs.HostLayout
	Header   capHeader
	NrIovas  uint32
	Reserved uint32
}

type iovaRange struct { // struct vfio_iova_range
	_     structs.HostLayout
	Start uint64
	End   uint64 // the last address
}

// The kernel wants argsz to be at least as large as the fields that it knows.
var (
	_ [8]byte  = [unsafe.Sizeof(groupStatus{})]byte{}
	_ [16]byte = [unsafe.Sizeof(deviceInfo{})]byte{}
	_ [32]byte = [unsafe.Sizeof(regionInfo{})]byte{}
	_ [16]byte = [unsafe.Sizeof(irqInfo{})]byte{}
	_ [20]byte = [unsafe.Sizeof(irqSet{})]byte{}
	_ [32]byte = [unsafe.Sizeof(dmaMap{})]byte{}
	_ [24]byte = [unsafe.Sizeof(dmaUnmap{})]byte{}
	_ [24]byte = [unsafe.Sizeof(iommuInfo{})]byte{}
	_ [16]byte = [unsafe.Sizeof(iovaCap{})]byte{}
	_ [16]byte = [unsafe.Sizeof(iovaRange{})]byte{}
)
