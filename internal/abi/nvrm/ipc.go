package nvrm

import (
	"structs"
	"unsafe"
)

// IPCMemHandle is a CUipcMemHandle as cuIpcGetMemHandle of CUDA 13.0 fills it.
// Nothing of this is documented: whoever uses it has to check that the memory
// it leads to is the memory it was asked for.
type IPCMemHandle struct {
	_       structs.HostLayout
	Pad0    [8]byte
	PID     uint32 // of the process that owns the memory
	Pad1    [4]byte
	Size    uint64 // of the allocation, as it was asked for
	Pages   uint32 // of 4 KiB, of the resource manager's object
	Offset  uint32 // of the allocation in the object
	GPUID   uint32 // CardInfo.GPUID
	Pad2    [12]byte
	HClient Handle // CUDA's own client
	HMemory Handle // the object, in that client
	Pad3    [8]byte
}

// IPCPageSize is the unit of IPCMemHandle.Pages.
const IPCPageSize = 4096

var _ [64]byte = [unsafe.Sizeof(IPCMemHandle{})]byte{}

// ParseIPC reads a CUipcMemHandle.
func ParseIPC(b [64]byte) IPCMemHandle { return *(*IPCMemHandle)(unsafe.Pointer(&b)) }

// Bytes is the handle as CUDA gives it.
func (h IPCMemHandle) Bytes() [64]byte { return *(*[64]byte)(unsafe.Pointer(&h)) }
