package nvme

// Offsets of controller registers in BAR0 (figure "Register Definition").
const (
	REG_CAP   = 0x00 // Controller Capabilities, 64 bit
	REG_VS    = 0x08 // Version
	REG_INTMS = 0x0c // Interrupt Mask Set
	REG_CC    = 0x14 // Controller Configuration
	REG_CSTS  = 0x1c // Controller Status
	REG_AQA   = 0x24 // Admin Queue Attributes
	REG_ASQ   = 0x28 // Admin Submission Queue Base Address, 64 bit
	REG_ACQ   = 0x30 // Admin Completion Queue Base Address, 64 bit
	REG_SQ0TD = 0x1000
)

// Doorbell offsets: REG_SQ0TD + (2q + {0, 1}) * (4 << CAP.DSTRD).

// SQTDBL is the offset of the tail doorbell of submission queue q.
func SQTDBL(q uint16, dstrd uint8) uint64 { return REG_SQ0TD + 2*uint64(q)*(4<<dstrd) }

// CQHDBL is the offset of the head doorbell of completion queue q.
func CQHDBL(q uint16, dstrd uint8) uint64 { return REG_SQ0TD + (2*uint64(q)+1)*(4<<dstrd) }

// CAP is the Controller Capabilities register.
type CAP uint64

// MQES is the largest queue, less one.
func (c CAP) MQES() uint16 { return uint16(c) }

// CQR means that queues must be physically contiguous.
func (c CAP) CQR() bool { return c>>16&1 != 0 }

// TO is the longest time from EN to RDY, in units of 500 ms.
func (c CAP) TO() uint8 { return uint8(c >> 24) }

// DSTRD is the distance of doorbells: 4 << DSTRD bytes.
func (c CAP) DSTRD() uint8 { return uint8(c>>32) & 0xf }

// CSS are the command sets: bit 0 is the NVM command set.
func (c CAP) CSS() uint8 { return uint8(c >> 37) }

// MPSMIN is the smallest memory page: 1 << (12 + MPSMIN).
func (c CAP) MPSMIN() uint8 { return uint8(c>>48) & 0xf }

// MPSMAX is the largest memory page: 1 << (12 + MPSMAX).
func (c CAP) MPSMAX() uint8 { return uint8(c>>52) & 0xf }

// Fields of CAP, for controllers.
const (
	CAP_CQR          = 1 << 16
	CAP_TO_SHIFT     = 24
	CAP_DSTRD_SHIFT  = 32
	CAP_CSS_NVM      = 1 << 37
	CAP_MPSMIN_SHIFT = 48
	CAP_MPSMAX_SHIFT = 52
)

// Fields of CC.
const (
	CC_EN           = 1 << 0
	CC_CSS_SHIFT    = 4
	CC_MPS_SHIFT    = 7
	CC_SHN_SHIFT    = 14
	CC_SHN_MASK     = 3 << CC_SHN_SHIFT
	CC_SHN_NORMAL   = 1 << CC_SHN_SHIFT
	CC_IOSQES_SHIFT = 16
	CC_IOCQES_SHIFT = 20
)

// Fields of CSTS.
const (
	CSTS_RDY           = 1 << 0
	CSTS_CFS           = 1 << 1 // Controller Fatal Status
	CSTS_SHST_SHIFT    = 2
	CSTS_SHST_MASK     = 3 << CSTS_SHST_SHIFT
	CSTS_SHST_COMPLETE = 2 << CSTS_SHST_SHIFT
)

// GONE is the value of every register of a removed device.
const GONE = 1<<32 - 1

// Fields of AQA: sizes of the admin queues, less one.
const (
	AQA_ASQS_SHIFT = 0
	AQA_ACQS_SHIFT = 16
	AQA_MASK       = 0xfff
)

// PageSize is the size of the memory page of an MPS value.
func PageSize(mps uint8) uint64 { return 1 << (12 + mps) }

// The sizes of queue entries, as powers of two.
const (
	SQES = 6
	CQES = 4
)
