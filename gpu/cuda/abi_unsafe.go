package cuda

import (
	"structs"
	"unsafe"
)

// From cuda.h:
const (
	memLocationTypeDevice  = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	memAllocationPinned    = 1 // CU_MEM_ALLOCATION_TYPE_PINNED
	memHandlePosixFD       = 1 // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	memAccessReadWrite     = 3 // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	memGranularityMinimum  = 0 // CU_MEM_ALLOC_GRANULARITY_MINIMUM
	memRangeDMABuf         = 1 // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
	streamNonBlocking      = 1 // CU_STREAM_NON_BLOCKING
	eventDefault           = 0 // CU_EVENT_DEFAULT
	jitErrorLogBuffer      = 5 // CU_JIT_ERROR_LOG_BUFFER
	jitErrorLogBufferBytes = 6 // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES

	pointerMemoryType    = 2  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
	pointerHost          = 4  // CU_POINTER_ATTRIBUTE_HOST_POINTER
	pointerSyncMemops    = 6  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
	pointerBufferID      = 7  // CU_POINTER_ATTRIBUTE_BUFFER_ID
	pointerIsManaged     = 8  // CU_POINTER_ATTRIBUTE_IS_MANAGED
	pointerDeviceOrdinal = 9  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
	pointerRangeStart    = 11 // CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
	pointerRangeSize     = 12 // CU_POINTER_ATTRIBUTE_RANGE_SIZE
	pointerHandleTypes   = 14 // CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES

	memoryTypeHost   = 1 // CU_MEMORYTYPE_HOST
	memoryTypeDevice = 2 // CU_MEMORYTYPE_DEVICE
)

// memLocation is CUmemLocation.
type memLocation struct {
	_    structs.HostLayout
	Type int32
	ID   int32
}

// memAllocationProp is CUmemAllocationProp.
type memAllocationProp struct {
	_                    structs.HostLayout
	Type                 int32
	RequestedHandleTypes int32
	Location             memLocation
	Win32HandleMetaData  uintptr
	CompressionType      uint8
	GPUDirectRDMACapable uint8
	Usage                uint16
	Reserved             [4]byte
}

// memAccessDesc is CUmemAccessDesc.
type memAccessDesc struct {
	_        structs.HostLayout
	Location memLocation
	Flags    int32
}

var (
	_ [32]byte = [unsafe.Sizeof(memAllocationProp{})]byte{}
	_ [12]byte = [unsafe.Sizeof(memAccessDesc{})]byte{}
)

// pointerAttributes are the attributes that Pointer reads, in the order of
// pointerQuery's values.
var pointerAttributes = [...]int32{
	pointerMemoryType, pointerHost, pointerSyncMemops, pointerIsManaged, pointerDeviceOrdinal,
	pointerRangeStart, pointerRangeSize, pointerHandleTypes,
}

// A pointerQuery is the memory that cuPointerGetAttributes reads and writes.
// Each value has eight bytes, even those that are smaller in cuda.h.
type pointerQuery struct {
	attributes [len(pointerAttributes)]int32
	data       [len(pointerAttributes)]*uint64
	values     struct {
		memoryType, host, syncMemops, isManaged, device, start, size, handleTypes uint64
	}
}

func newPointerQuery() *pointerQuery {
	q := &pointerQuery{attributes: pointerAttributes}
	values := (*[len(pointerAttributes)]uint64)(unsafe.Pointer(&q.values))
	for i := range q.data {
		q.data[i] = &values[i]
	}
	return q
}

// jitOptions are the options for loading a module: the buffer for the
// compiler's error log.
type jitOptions struct {
	keys   [2]int32
	values [2]uintptr
	log    [8 << 10]byte
}

func newJITOptions() *jitOptions {
	o := &jitOptions{keys: [2]int32{jitErrorLogBuffer, jitErrorLogBufferBytes}}
	o.values = [2]uintptr{ref(&o.log), uintptr(len(o.log))}
	return o
}
