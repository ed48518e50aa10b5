// Package p2p has the numbers of nvidia-p2p, the interface by which kernel
// modules get at GPU memory (nv-p2p.h).
package p2p

import "syscall"

// Versions of the structs, major in the high half.
const (
	NVIDIA_P2P_PAGE_TABLE_VERSION  = 0x00020000
	NVIDIA_P2P_DMA_MAPPING_VERSION = 0x00020003
)

// Compatible is NVIDIA_P2P_VERSION_COMPATIBLE: whether a struct of version have
// suits a caller that knows version want.
func Compatible(have, want uint32) bool {
	return have>>16 == want>>16 && have&0xffff >= want&0xffff
}

// A PageSize is enum nvidia_p2p_page_size_type.
type PageSize uint32

// NVIDIA_P2P_PAGE_SIZE_64KB is the size of the pages of all current GPUs.
const NVIDIA_P2P_PAGE_SIZE_64KB PageSize = 1

// NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING is a flag of the persistent calls.
const NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING = 1

// ENOTSUPP is an errno internal to the kernel, which nvidia-p2p returns anyway.
const ENOTSUPP = syscall.Errno(524)
