package vfio

import (
	"os"
	"testing"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

// header is the kernel's own.
const header = `
#include <linux/vfio.h>
`

func TestLayoutsAgainstTheKernelsHeader(t *testing.T) {
	if _, err := os.Stat("/usr/include/linux/vfio.h"); err != nil {
		t.Skip("needs the kernel's headers (package linux-libc-dev)")
	}
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct vfio_group_status", Members: "argsz flags", Go: GroupStatus{}},
		{C: "struct vfio_region_info", Members: "argsz flags index cap_offset size offset", Go: RegionInfo{}},
		{C: "struct vfio_irq_info", Members: "argsz flags index count", Go: IRQInfo{}},
		{C: "struct vfio_irq_set", Members: "argsz flags index start count", Go: IRQSet{}},
		{C: "struct vfio_iommu_type1_dma_map", Members: "argsz flags vaddr iova size", Go: DMAMap{}},
		{C: "struct vfio_iommu_type1_dma_unmap", Members: "argsz flags iova size", Go: DMAUnmap{}},
		{C: "struct vfio_iommu_type1_info", Members: "argsz flags iova_pgsizes cap_offset", Go: IOMMUInfo{}},
		{C: "struct vfio_info_cap_header", Members: "id version next", Go: CapHeader{}},
		{C: "struct vfio_iommu_type1_info_cap_iova_range", Members: "header nr_iovas reserved", Go: IOVACap{}},
		{C: "struct vfio_iova_range", Members: "start end", Go: IOVARange{}},
	})
	cproof.Numbers(t, header, map[string]uint64{
		"VFIO_GET_API_VERSION":                 uint64(VFIO_GET_API_VERSION),
		"VFIO_CHECK_EXTENSION":                 uint64(VFIO_CHECK_EXTENSION),
		"VFIO_SET_IOMMU":                       uint64(VFIO_SET_IOMMU),
		"VFIO_GROUP_GET_STATUS":                uint64(VFIO_GROUP_GET_STATUS),
		"VFIO_GROUP_SET_CONTAINER":             uint64(VFIO_GROUP_SET_CONTAINER),
		"VFIO_GROUP_GET_DEVICE_FD":             uint64(VFIO_GROUP_GET_DEVICE_FD),
		"VFIO_DEVICE_GET_INFO":                 uint64(VFIO_DEVICE_GET_INFO),
		"VFIO_DEVICE_GET_REGION_INFO":          uint64(VFIO_DEVICE_GET_REGION_INFO),
		"VFIO_DEVICE_GET_IRQ_INFO":             uint64(VFIO_DEVICE_GET_IRQ_INFO),
		"VFIO_DEVICE_SET_IRQS":                 uint64(VFIO_DEVICE_SET_IRQS),
		"VFIO_DEVICE_RESET":                    uint64(VFIO_DEVICE_RESET),
		"VFIO_IOMMU_GET_INFO":                  uint64(VFIO_IOMMU_GET_INFO),
		"VFIO_IOMMU_MAP_DMA":                   uint64(VFIO_IOMMU_MAP_DMA),
		"VFIO_IOMMU_UNMAP_DMA":                 uint64(VFIO_IOMMU_UNMAP_DMA),
		"VFIO_TYPE1v2_IOMMU":                   VFIO_TYPE1v2_IOMMU,
		"VFIO_GROUP_FLAGS_VIABLE":              VFIO_GROUP_FLAGS_VIABLE,
		"VFIO_DEVICE_FLAGS_RESET":              VFIO_DEVICE_FLAGS_RESET,
		"VFIO_DEVICE_FLAGS_PCI":                VFIO_DEVICE_FLAGS_PCI,
		"VFIO_REGION_INFO_FLAG_MMAP":           VFIO_REGION_INFO_FLAG_MMAP,
		"VFIO_PCI_CONFIG_REGION_INDEX":         VFIO_PCI_CONFIG_REGION_INDEX,
		"VFIO_PCI_MSIX_IRQ_INDEX":              VFIO_PCI_MSIX_IRQ_INDEX,
		"VFIO_IRQ_SET_DATA_NONE":               VFIO_IRQ_SET_DATA_NONE,
		"VFIO_IRQ_SET_DATA_EVENTFD":            VFIO_IRQ_SET_DATA_EVENTFD,
		"VFIO_IRQ_SET_ACTION_TRIGGER":          VFIO_IRQ_SET_ACTION_TRIGGER,
		"VFIO_DMA_MAP_FLAG_READ":               VFIO_DMA_MAP_FLAG_READ,
		"VFIO_DMA_MAP_FLAG_WRITE":              VFIO_DMA_MAP_FLAG_WRITE,
		"VFIO_IOMMU_INFO_CAPS":                 VFIO_IOMMU_INFO_CAPS,
		"VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE": VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
	})
}
