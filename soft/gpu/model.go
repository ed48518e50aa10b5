package gpu

import (
	"maps"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// A Model describes a card. The zero value of Memory means [DefaultMemory]. Start from
// one of the functions below.
type Model struct {
	Name       string
	Capability [2]int
	Multiprocs int
	// Memory is the size that can be allocated. It costs memory of this machine when it is
	// used, so the models have less than the cards.
	Memory uint64
	// BAR1 is the size of the window through which other devices and the CPU reach the
	// memory.
	BAR1 uint64
	// Attributes are the values of gpu.Device.Attribute, in addition to those that follow
	// from the other fields. Others are unknown.
	Attributes map[gpu.Attribute]int
}

// DefaultMemory is the default of Model.Memory.
const DefaultMemory = 8 << 30

// H200 returns a data-centre card, whose whole memory fits into BAR1.
func H200() Model {
	return Model{
		Name:       "NVIDIA H200 (software)",
		Capability: [2]int{9, 0},
		Multiprocs: 132,
		Memory:     DefaultMemory,
		BAR1:       256 << 30,
		Attributes: maps.Clone(dataCentre),
	}
}

// SmallBAR returns a desktop card: only 256 MiB of its memory can be mapped at a time,
// and it has no GPUDirect RDMA.
func SmallBAR() Model {
	m := Model{
		Name:       "NVIDIA GeForce RTX 3090 (software)",
		Capability: [2]int{8, 6},
		Multiprocs: 82,
		Memory:     DefaultMemory,
		BAR1:       256 << 20,
		Attributes: maps.Clone(dataCentre),
	}
	maps.Copy(m.Attributes, map[gpu.Attribute]int{
		abi.AttrClockRate:                   1695000,
		abi.AttrAsyncEngines:                2,
		abi.AttrGPUDirectRDMA:               0,
		abi.AttrGPUDirectRDMAWithVMM:        0,
		abi.AttrGPUDirectRDMAFlushOptions:   0,
		abi.AttrGPUDirectRDMAWritesOrdering: 0,
		abi.AttrDMABuf:                      0,
	})
	return m
}

// Pageable returns an H200 under a kernel with heterogeneous memory management: its
// kernels may access memory that the driver does not know.
func Pageable() Model {
	m := H200()
	m.Name = "NVIDIA H200 with HMM (software)"
	m.Attributes[gpu.AttrPageableMemoryAccess] = 1
	return m
}

// dataCentre are the attributes of an H200 with driver 580 and CUDA 13.0, which does not
// know attribute 152 (DMA_BUF_MMAP_SUPPORTED). CUDA 13.3 does: the software CUDA of C
// programs answers it, because only they can map dma-bufs.
var dataCentre = map[gpu.Attribute]int{
	abi.AttrMaxThreadsPerBlock:          1024,
	abi.AttrClockRate:                   1980000,
	abi.AttrIntegrated:                  0,
	abi.AttrCanMapHostMemory:            1,
	abi.AttrAsyncEngines:                3,
	abi.AttrUnifiedAddressing:           1,
	abi.AttrManagedMemory:               1,
	abi.AttrHostNativeAtomics:           0,
	gpu.AttrPageableMemoryAccess:        0,
	abi.AttrConcurrentManagedAccess:     1,
	abi.AttrHostPointerForRegistered:    1,
	abi.AttrFlushRemoteWrites:           0,
	abi.AttrHostRegister:                1,
	abi.AttrPageableUsesHostTables:      0,
	abi.AttrDirectManagedAccess:         0,
	abi.AttrVirtualMemory:               1,
	abi.AttrPosixFDHandles:              1,
	abi.AttrGPUDirectRDMAWithVMM:        1,
	abi.AttrReadOnlyHostRegister:        1,
	abi.AttrGPUDirectRDMA:               1,
	abi.AttrGPUDirectRDMAFlushOptions:   1,
	abi.AttrGPUDirectRDMAWritesOrdering: 100,
	abi.AttrStreamMemOps64:              1,
	abi.AttrStreamWaitNOR:               1,
	abi.AttrDMABuf:                      1,
	abi.AttrHostAllocDMABuf:             0,
}
