package gpu

import (
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// An Attribute is the number of a CUdevice_attribute. Any number that the
// driver knows is valid, not only those named here.
type Attribute int32

// AttrPageableMemoryAccess is 1 on GPUs that access unregistered host memory.
const AttrPageableMemoryAccess Attribute = abi.AttrPageableMemoryAccess

// String is CUDA's name for the attribute, without CU_DEVICE_ATTRIBUTE_.
func (a Attribute) String() string {
	if s, ok := abi.AttributeNames[int32(a)]; ok {
		return s
	}
	return fmt.Sprintf("ATTRIBUTE_%d", int32(a))
}

// DirectIOAttributes are the attributes that decide how data can reach a GPU,
// in the order in which reports list them.
var DirectIOAttributes = []Attribute{
	abi.AttrGPUDirectRDMA, abi.AttrGPUDirectRDMAWithVMM, abi.AttrGPUDirectRDMAFlushOptions, abi.AttrGPUDirectRDMAWritesOrdering,
	abi.AttrDMABuf, abi.AttrDMABufMmap, abi.AttrHostRegister, abi.AttrReadOnlyHostRegister, AttrPageableMemoryAccess,
	abi.AttrManagedMemory, abi.AttrVirtualMemory, abi.AttrPosixFDHandles, abi.AttrStreamMemOps64, abi.AttrAsyncEngines,
}
