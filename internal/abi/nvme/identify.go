package nvme

import (
	"structs"
	"unsafe"
)

// IdentifySize is the size of every data structure of Identify.
const IdentifySize = 4096

// IdentifyController is the Identify Controller data structure (CNS 01h).
type IdentifyController struct {
	_      structs.HostLayout
	VID    uint16 // PCI Vendor ID
	SSVID  uint16
	SN     [20]byte // Serial Number, ASCII
	MN     [40]byte // Model Number, ASCII
	FR     [8]byte  // Firmware Revision, ASCII
	RAB    uint8
	IEEE   [3]byte
	CMIC   uint8
	MDTS   uint8 // Maximum Data Transfer Size: 2^MDTS pages of CAP.MPSMIN; 0 means no limit
	CNTLID uint16
	VER    uint32
	Pad0   [172]byte
	OACS   uint16
	ACL    uint8 // Abort Command Limit, less one
	AERL   uint8
	FRMW   uint8
	LPA    uint8
	ELPE   uint8
	NPSS   uint8
	Pad1   [248]byte
	SQES   uint8 // Submission Queue Entry Size: smallest in bits 3:0, largest in bits 7:4
	CQES   uint8
	MAXCMD uint16
	NN     uint32 // Number of Namespaces
	ONCS   uint16 // Optional NVM Command Support
	FUSES  uint16
	FNA    uint8
	VWC    uint8 // Volatile Write Cache: bit 0 says that there is one
	AWUN   uint16
	AWUPF  uint16
	Pad2   [6]byte
	SGLS   uint32
	Pad3   [228]byte
	SUBNQN [256]byte
	Pad4   [1024]byte
	PSD    [1024]byte
	Vendor [1024]byte
}

// ONCS_WRITE_ZEROES says that Write Zeroes is supported.
const ONCS_WRITE_ZEROES = 1 << 3

// IdentifyNamespace is the Identify Namespace data structure (CNS 00h).
type IdentifyNamespace struct {
	_      structs.HostLayout
	NSZE   uint64 // Namespace Size, in blocks
	NCAP   uint64
	NUSE   uint64
	NSFEAT uint8
	NLBAF  uint8 // Number of LBA Formats, less one
	FLBAS  uint8 // Formatted LBA Size: bits 3:0 index LBAF
	MC     uint8
	DPC    uint8
	DPS    uint8
	Pad0   [74]byte
	NGUID  [16]byte
	EUI64  [8]byte
	LBAF   [16]LBAFormat
	Pad1   [192]byte
	Vendor [3712]byte
}

// LBAFormat is the LBA Format data structure.
type LBAFormat struct {
	_     structs.HostLayout
	MS    uint16 // Metadata Size
	LBADS uint8  // LBA Data Size, as a power of two
	RP    uint8
}

// FLBAS_INDEX_MASK takes the index of the format out of FLBAS.
const FLBAS_INDEX_MASK = 0xf

// NamespaceList is the Namespace List (CNS 02h): ids in ascending order, zeros
// after the last.
type NamespaceList [1024]uint32

var (
	_ [IdentifySize]byte = [unsafe.Sizeof(IdentifyController{})]byte{}
	_ [IdentifySize]byte = [unsafe.Sizeof(IdentifyNamespace{})]byte{}
	_ [IdentifySize]byte = [unsafe.Sizeof(NamespaceList{})]byte{}
	_ [4]byte            = [unsafe.Sizeof(LBAFormat{})]byte{}
)
