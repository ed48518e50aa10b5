package uring

import (
	"structs"
	"unsafe"
)

// From include/uapi/linux/io_uring.h.
const (
	IORING_OFF_SQ_RING = 0
	IORING_OFF_SQES    = 0x10000000

	IORING_SETUP_CLAMP        = 1 << 4
	IORING_SETUP_SUBMIT_ALL   = 1 << 7 // Linux 5.18
	IORING_SETUP_COOP_TASKRUN = 1 << 8 // Linux 5.19

	IORING_FEAT_SINGLE_MMAP = 1 << 0
	IORING_FEAT_NODROP      = 1 << 1 // Linux 5.5
	IORING_FEAT_RW_CUR_POS  = 1 << 3 // Linux 5.6, as is IORING_OP_READ

	IORING_ENTER_GETEVENTS = 1 << 0

	IORING_OP_READ = 22
)

// sqringOffsets is struct io_sqring_offsets.
type sqringOffsets struct {
	_           structs.HostLayout
	Head        uint32
	Tail        uint32
	RingMask    uint32
	RingEntries uint32
	Flags       uint32
	Dropped     uint32
	Array       uint32
	Resv1       uint32
	UserAddr    uint64
}

// cqringOffsets is struct io_cqring_offsets.
type cqringOffsets struct {
	_           structs.HostLayout
	Head        uint32
	Tail        uint32
	RingMask    uint32
	RingEntries uint32
	Overflow    uint32
	Cqes        uint32
	Flags       uint32
	Resv1       uint32
	UserAddr    uint64
}

// params is struct io_uring_params.
type params struct {
	_            structs.HostLayout
	SqEntries    uint32
	CqEntries    uint32
	Flags        uint32
	SqThreadCPU  uint32
	SqThreadIdle uint32
	Features     uint32
	WqFd         uint32
	Resv         [3]uint32
	SqOff        sqringOffsets
	CqOff        cqringOffsets
}

// sqe is struct io_uring_sqe, as far as reads use it.
type sqe struct {
	_           structs.HostLayout
	Opcode      uint8
	Flags       uint8
	Ioprio      uint16
	Fd          int32
	Off         uint64
	Addr        uint64
	Len         uint32
	RwFlags     uint32
	UserData    uint64
	BufIndex    uint16
	Personality uint16
	FileIndex   uint32
	Addr3       uint64
	Pad2        uint64
}

// cqe is struct io_uring_cqe.
type cqe struct {
	_        structs.HostLayout
	UserData uint64
	Res      int32
	Flags    uint32
}

var (
	_ [40]byte  = [unsafe.Sizeof(sqringOffsets{})]byte{}
	_ [40]byte  = [unsafe.Sizeof(cqringOffsets{})]byte{}
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [64]byte  = [unsafe.Sizeof(sqe{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(cqe{})]byte{}
)
