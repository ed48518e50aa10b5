package cuda

// Device attributes (CUdevice_attribute).
const (
	AttrMaxThreadsPerBlock          = 1
	AttrClockRate                   = 13
	AttrMultiprocessors             = 16
	AttrIntegrated                  = 18
	AttrCanMapHostMemory            = 19
	AttrPCIBusID                    = 33
	AttrPCIDeviceID                 = 34
	AttrAsyncEngines                = 40
	AttrUnifiedAddressing           = 41
	AttrPCIDomainID                 = 50
	AttrCapabilityMajor             = 75
	AttrCapabilityMinor             = 76
	AttrManagedMemory               = 83
	AttrHostNativeAtomics           = 86
	AttrPageableMemoryAccess        = 88
	AttrConcurrentManagedAccess     = 89
	AttrHostPointerForRegistered    = 91
	AttrFlushRemoteWrites           = 98
	AttrHostRegister                = 99
	AttrPageableUsesHostTables      = 100
	AttrDirectManagedAccess         = 101
	AttrVirtualMemory               = 102
	AttrPosixFDHandles              = 103
	AttrGPUDirectRDMAWithVMM        = 110
	AttrReadOnlyHostRegister        = 113
	AttrGPUDirectRDMA               = 116
	AttrGPUDirectRDMAFlushOptions   = 117
	AttrGPUDirectRDMAWritesOrdering = 118
	AttrStreamMemOps64              = 122
	AttrStreamWaitNOR               = 123
	AttrDMABuf                      = 124
	AttrHostAllocDMABuf             = 146
	AttrDMABufMmap                  = 152
)

// AttributeNames are CUDA's names without their prefix CU_DEVICE_ATTRIBUTE_.
var AttributeNames = map[int32]string{
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
