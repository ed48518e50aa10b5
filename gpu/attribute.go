package gpu

import "fmt"

// An Attribute is a CUdevice_attribute.
type Attribute int32

// The attributes that matter to moving bytes.
const (
	AttrMaxThreadsPerBlock          Attribute = 1
	AttrClockRate                   Attribute = 13
	AttrMultiprocessors             Attribute = 16
	AttrIntegrated                  Attribute = 18
	AttrCanMapHostMemory            Attribute = 19
	AttrPCIBusID                    Attribute = 33
	AttrPCIDeviceID                 Attribute = 34
	AttrAsyncEngines                Attribute = 40
	AttrUnifiedAddressing           Attribute = 41
	AttrPCIDomainID                 Attribute = 50
	AttrCapabilityMajor             Attribute = 75
	AttrCapabilityMinor             Attribute = 76
	AttrManagedMemory               Attribute = 83
	AttrHostNativeAtomics           Attribute = 86
	AttrPageableMemoryAccess        Attribute = 88
	AttrConcurrentManagedAccess     Attribute = 89
	AttrHostPointerForRegistered    Attribute = 91
	AttrFlushRemoteWrites           Attribute = 98
	AttrHostRegister                Attribute = 99
	AttrPageableUsesHostTables      Attribute = 100
	AttrDirectManagedAccess         Attribute = 101
	AttrVirtualMemory               Attribute = 102
	AttrPosixFDHandles              Attribute = 103
	AttrGPUDirectRDMAWithVMM        Attribute = 110
	AttrReadOnlyHostRegister        Attribute = 113
	AttrGPUDirectRDMA               Attribute = 116
	AttrGPUDirectRDMAFlushOptions   Attribute = 117
	AttrGPUDirectRDMAWritesOrdering Attribute = 118
	AttrStreamMemOps64              Attribute = 122
	AttrStreamWaitNOR               Attribute = 123
	AttrDMABuf                      Attribute = 124
	AttrHostAllocDMABuf             Attribute = 146
	AttrDMABufMmap                  Attribute = 152
)

var attributeNames = map[Attribute]string{
	AttrMaxThreadsPerBlock:          "MAX_THREADS_PER_BLOCK",
	AttrClockRate:                   "CLOCK_RATE",
	AttrMultiprocessors:             "MULTIPROCESSOR_COUNT",
	AttrIntegrated:                  "INTEGRATED",
	AttrCanMapHostMemory:            "CAN_MAP_HOST_MEMORY",
	AttrPCIBusID:                    "PCI_BUS_ID",
	AttrPCIDeviceID:                 "PCI_DEVICE_ID",
	AttrAsyncEngines:                "ASYNC_ENGINE_COUNT",
	AttrUnifiedAddressing:           "UNIFIED_ADDRESSING",
	AttrPCIDomainID:                 "PCI_DOMAIN_ID",
	AttrCapabilityMajor:             "COMPUTE_CAPABILITY_MAJOR",
	AttrCapabilityMinor:             "COMPUTE_CAPABILITY_MINOR",
	AttrManagedMemory:               "MANAGED_MEMORY",
	AttrHostNativeAtomics:           "HOST_NATIVE_ATOMIC_SUPPORTED",
	AttrPageableMemoryAccess:        "PAGEABLE_MEMORY_ACCESS",
	AttrConcurrentManagedAccess:     "CONCURRENT_MANAGED_ACCESS",
	AttrHostPointerForRegistered:    "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
	AttrFlushRemoteWrites:           "CAN_FLUSH_REMOTE_WRITES",
	AttrHostRegister:                "HOST_REGISTER_SUPPORTED",
	AttrPageableUsesHostTables:      "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES",
	AttrDirectManagedAccess:         "DIRECT_MANAGED_MEM_ACCESS_FROM_HOST",
	AttrVirtualMemory:               "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
	AttrPosixFDHandles:              "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
	AttrGPUDirectRDMAWithVMM:        "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED",
	AttrReadOnlyHostRegister:        "READ_ONLY_HOST_REGISTER_SUPPORTED",
	AttrGPUDirectRDMA:               "GPU_DIRECT_RDMA_SUPPORTED",
	AttrGPUDirectRDMAFlushOptions:   "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS",
	AttrGPUDirectRDMAWritesOrdering: "GPU_DIRECT_RDMA_WRITES_ORDERING",
	AttrStreamMemOps64:              "CAN_USE_64_BIT_STREAM_MEM_OPS",
	AttrStreamWaitNOR:               "CAN_USE_STREAM_WAIT_VALUE_NOR",
	AttrDMABuf:                      "DMA_BUF_SUPPORTED",
	AttrHostAllocDMABuf:             "HOST_ALLOC_DMA_BUF_SUPPORTED",
	AttrDMABufMmap:                  "DMA_BUF_MMAP_SUPPORTED",
}

func (a Attribute) String() string {
	if s, ok := attributeNames[a]; ok {
		return s
	}
	return fmt.Sprintf("ATTRIBUTE_%d", int32(a))
}

// DirectIOAttributes are the attributes that decide how bytes can reach a GPU,
// in the order in which a report should show them.
var DirectIOAttributes = []Attribute{
	AttrGPUDirectRDMA, AttrGPUDirectRDMAWithVMM, AttrGPUDirectRDMAFlushOptions, AttrGPUDirectRDMAWritesOrdering,
	AttrDMABuf, AttrDMABufMmap, AttrHostRegister, AttrReadOnlyHostRegister, AttrPageableMemoryAccess,
	AttrManagedMemory, AttrVirtualMemory, AttrPosixFDHandles, AttrStreamMemOps64, AttrAsyncEngines,
}
