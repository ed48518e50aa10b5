// Package gpumem mirrors the ioctl interface of gpumem, the module of the gpudma
// project, which returns the physical addresses of GPU memory.
package gpumem

import (
	"structs"
	"unsafe"
)

// Path is the module's device node; ProcPath lists locked memory.
const (
	Path     = "/dev/gpumem"
	ProcPath = "proc/gpumem"
)

// Requests, from gpumemioctl.h. They encode neither direction nor size.
const (
	IOCTL_GPUMEM_LOCK   = 0x670A // _IO('g', 10)
	IOCTL_GPUMEM_UNLOCK = 0x670B
	IOCTL_GPUMEM_STATE  = 0x670C

	GPU_BOUND_SHIFT  = 16
	GPU_BOUND_SIZE   = 1 << GPU_BOUND_SHIFT
	GPU_BOUND_OFFSET = GPU_BOUND_SIZE - 1
)

// Lock is struct gpudma_lock_t.
type Lock struct {
	_         structs.HostLayout
	Handle    uint64 // out: an address in the kernel, opaque
	Addr      uint64
	Size      uint64
	PageCount uint64 // out
}

// Unlock is struct gpudma_unlock_t.
type Unlock struct {
	_      structs.HostLayout
	Handle uint64
}

// State is struct gpudma_state_t without its array. In C the array has one
// element, so the struct counts as 32 bytes.
type State struct {
	_         structs.HostLayout
	Handle    uint64
	PageCount uint64
	PageSize  uint64 // out: bytes
}

var (
	_ [32]byte = [unsafe.Sizeof(Lock{})]byte{}
	_ [8]byte  = [unsafe.Sizeof(Unlock{})]byte{}
	_ [24]byte = [unsafe.Sizeof(State{})]byte{}
)

const (
	// StateHeader is the number of bytes that the module reads of STATE's argument.
	StateHeader = 32
	// StatePages is the offset of the page addresses in it.
	StatePages = 24
)

// StateSize is the number of bytes that the module writes for n pages: their
// addresses and one zero. A buffer without room for the zero faults.
func StateSize(n uint64) uint64 { return StateHeader + 8*n }
