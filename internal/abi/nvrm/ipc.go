package nvrm

import (
	"structs"
	"unsafe"
)

// IPCMemHandle is a CUipcMemHandle as cuIpcGetMemHandle of CUDA 13.0 fills it.
// None of this is documented: users must verify that it leads to the memory they
// asked for.
type IPCMemHandle struct {
	_       structs.HostLayout
	Pad0    [8]byte
	PID     uint32 // of the process that owns the memory
	Pad1    [4]byte
	Size    uint64 // of the allocation, as requested
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

// Bytes is the handle in CUDA's form.
func (h IPCMemHandle) Bytes() [64]byte { return *(*[64]byte)(unsafe.Pointer(&h)) }
