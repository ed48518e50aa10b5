// Package nvfs mirrors the interface of nvidia-fs, the kernel module under
// cuFile, version 2.28.4. Its structs are packed, with a 64-bit field at offset
// 20, so they are encoded, not laid over memory.
package nvfs

import "fmt"

// MaxDevices is the number of device nodes: /dev/nvidia-fs0 and so on.
const MaxDevices = 16

// Path is the path of device node i.
func Path(i int) string { return fmt.Sprintf("/dev/nvidia-fs%d", i) }

// ProcDir has the module's statistics and version.
const ProcDir = "proc/driver/nvidia-fs"

// Request numbers. Each encodes size 4, whatever the argument is.
const (
	NVFS_IOCTL_REMOVE              = 0x40047401
	NVFS_IOCTL_READ                = 0x40047402
	NVFS_IOCTL_MAP                 = 0x40047403
	NVFS_IOCTL_WRITE               = 0x40047404
	NVFS_IOCTL_SET_RDMA_REG_INFO   = 0x40047405
	NVFS_IOCTL_GET_RDMA_REG_INFO   = 0x40047406
	NVFS_IOCTL_CLEAR_RDMA_REG_INFO = 0x40047407
	NVFS_IOCTL_BATCH_IO            = 0x40047408
)

const (
	// ArgSize is the number of bytes that the module copies, for any request.
	ArgSize = 104
	// ReturnAt is the offset of the result of READ, WRITE and MAP.
	ReturnAt = 32

	BLOCK_SIZE      = 4096
	GPU_PAGE_SIZE   = 64 << 10
	BLOCKS_PER_PAGE = GPU_PAGE_SIZE / BLOCK_SIZE
	MAX_BLOCKS      = 4096 // of a shadow buffer
	MAX_SHADOW      = MAX_BLOCKS * BLOCK_SIZE
	MAX_BATCH       = 256
	MAX_RDMA_KEYS   = 16
	MIN_RDMA_VER    = 2
)

// A State is the state of an mgroup: io_state.
type State uint32

const (
	IO_FREE State = iota
	IO_INIT
	IO_READY
	IO_IN_PROGRESS
	IO_TERMINATE_REQ
	IO_TERMINATED
	IO_CALLBACK_REQ
	IO_CALLBACK_END
	IO_UNPIN_PAGES_ALREADY_INVOKED
)

// A BlockState is the state of a block of a shadow buffer.
type BlockState uint8

const (
	BLOCK_FREE BlockState = iota
	BLOCK_ALLOC
	BLOCK_INIT
	BLOCK_QUEUED
	BLOCK_DMA_START
	BLOCK_DONE
	BLOCK_DMA_ERROR
)
