package p2p

import (
	"structs"
	"syscall"
	"unsafe"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

// Versions of the structs, major in the high half.
const (
	NVIDIA_P2P_PAGE_TABLE_VERSION   = 0x00020000
	NVIDIA_P2P_DMA_MAPPING_VERSION  = 0x00020003
	NVIDIA_P2P_PARAMS_VERSION       = 0x00010001
	NVIDIA_P2P_RSYNC_DRIVER_VERSION = 0x00010001

	// The integrated GPUs' implementation has versions of its own.
	TEGRA_P2P_PAGE_TABLE_VERSION  = 0x00010000
	TEGRA_P2P_DMA_MAPPING_VERSION = 0x00010000
)

// Compatible is NVIDIA_P2P_VERSION_COMPATIBLE: whether something of version
// have is good for a caller that knows version want.
func Compatible(have, want uint32) bool {
	return have>>16 == want>>16 && have&0xffff >= want&0xffff
}

// A PageSize is enum nvidia_p2p_page_size_type.
type PageSize uint32

const (
	NVIDIA_P2P_PAGE_SIZE_4KB   PageSize = 0
	NVIDIA_P2P_PAGE_SIZE_64KB  PageSize = 1
	NVIDIA_P2P_PAGE_SIZE_128KB PageSize = 2
	NVIDIA_P2P_PAGE_SIZE_COUNT PageSize = 3
)

// Bytes is the size of a page, or 0 where there is no such size.
func (s PageSize) Bytes() uint64 {
	if s >= NVIDIA_P2P_PAGE_SIZE_COUNT {
		return 0
	}
	return [...]uint64{4 << 10, 64 << 10, 128 << 10}[s]
}

const (
	// A page table's flags.
	NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE = 1

	// Flags of the persistent calls.
	NVIDIA_P2P_FLAGS_DEFAULT            = 0
	NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING = 1
)

// Page is struct nvidia_p2p_page.
type Page struct {
	_               structs.HostLayout
	PhysicalAddress uint64
	WreqmbH         uint32 // registers.fermi
	RreqmbH         uint32
	Rreqmb0         uint32
	Reserved        [3]uint32
}

// PageTable is struct nvidia_p2p_page_table.
type PageTable struct {
	_        structs.HostLayout
	Version  uint32
	PageSize PageSize
	Pages    uint64 // pointer to pointers to Page
	Entries  uint32
	Pad0     [4]byte
	GPUUUID  uint64 // pointer to 16 bytes
	Flags    uint8
	Pad1     [7]byte
}

// DMAMapping is struct nvidia_p2p_dma_mapping.
type DMAMapping struct {
	_            structs.HostLayout
	Version      uint32
	PageSizeType PageSize
	Entries      uint32
	Pad0         [4]byte
	DMAAddresses uint64 // pointer to u64
	Private      uint64 // pointer
	PCIDev       uint64 // pointer
}

var (
	_ [32]byte = [unsafe.Sizeof(Page{})]byte{}
	_ [40]byte = [unsafe.Sizeof(PageTable{})]byte{}
	_ [40]byte = [unsafe.Sizeof(DMAMapping{})]byte{}
)

// ENOTSUPP is an errno that the kernel keeps to itself, and yet returns.
const ENOTSUPP = syscall.Errno(524)

// NV_ERR_GPU_UUID_NOT_FOUND is answered for a GPU that has gone.
const NV_ERR_GPU_UUID_NOT_FOUND nvrm.Status = 0x12

// Errno is nvidia_p2p_map_status: what the calls return for a status of the
// resource manager. It is 0 for NV_OK.
func Errno(s nvrm.Status) syscall.Errno {
	switch s {
	case nvrm.NV_OK:
		return 0
	case nvrm.NV_ERR_INSUFFICIENT_RESOURCES, nvrm.NV_ERR_NO_MEMORY:
		return syscall.ENOMEM
	case nvrm.NV_ERR_INVALID_ARGUMENT, nvrm.NV_ERR_INVALID_OBJECT_HANDLE, nvrm.NV_ERR_OBJECT_NOT_FOUND:
		return syscall.EINVAL
	case nvrm.NV_ERR_NOT_SUPPORTED:
		return ENOTSUPP
	case nvrm.NV_ERR_STATE_IN_USE:
		return syscall.EBUSY
	case NV_ERR_GPU_UUID_NOT_FOUND:
		return syscall.ENODEV
	}
	return syscall.EIO
}
