package nvmf

import (
	"structs"

	"github.com/culvert-io/culvert/internal/abi/nvme"
)

// OPCODE is the opcode of every Fabrics command.
const OPCODE = 0x7f

// Types of Fabrics commands.
const (
	TYPE_PROPERTY_SET = 0x00
	TYPE_CONNECT      = 0x01
	TYPE_PROPERTY_GET = 0x04
)

// ConnectCommand is the Connect command: it creates a queue.
type ConnectCommand struct {
	_      structs.HostLayout
	Opcode uint8
	Pad0   uint8
	CID    uint16
	FCType uint8
	Pad1   [19]byte
	SGL    [16]byte
	RecFmt uint16
	QID    uint16
	SQSize uint16 // less one
	CATTR  uint8
	Pad2   uint8
	KATO   uint32 // Keep Alive Timeout, in milliseconds
	Pad3   [12]byte
}

// CATTR_DISABLE_SQFLOW asks for a queue whose completions carry no SQHD.
const CATTR_DISABLE_SQFLOW = 1 << 2

// ConnectData is the data of the Connect command.
type ConnectData struct {
	_       structs.HostLayout
	HostID  [16]byte
	CNTLID  uint16 // CNTLID_ANY in the connect of an admin queue
	Pad0    [238]byte
	SUBNQN  [256]byte
	HOSTNQN [256]byte
	Pad1    [256]byte
}

// ConnectDataSize is the size of the data of Connect in bytes.
const ConnectDataSize = 1024

// CNTLID_ANY lets the subsystem choose the controller.
const CNTLID_ANY = 0xffff

// Where an invalid parameter of Connect is: dword 0 of the completion has its
// offset in bits 15:0 and one of these in bits 23:16.
const (
	IATTR_COMMAND = 0
	IATTR_DATA    = 1
)

// PropertyCommand is a Property Get or Property Set command. Value is reserved in
// Property Get.
type PropertyCommand struct {
	_      structs.HostLayout
	Opcode uint8
	Pad0   uint8
	CID    uint16
	FCType uint8
	Pad1   [35]byte
	Attrib uint8
	Pad2   [3]byte
	Offset uint32 // a register of the controller
	Value  uint64
	Pad3   [8]byte
}

// PROPERTY_8 says that the property has 8 bytes, not 4.
const PROPERTY_8 = 1

// Fabrics status codes, which are command specific.
const (
	CONNECT_INCOMPATIBLE_FORMAT nvme.Status = 0x180
	CONNECT_CONTROLLER_BUSY     nvme.Status = 0x181
	CONNECT_INVALID_PARAMETERS  nvme.Status = 0x182
	CONNECT_RESTART_DISCOVERY   nvme.Status = 0x183
	CONNECT_INVALID_HOST        nvme.Status = 0x184
)

// Fabrics fields of the Identify Controller data structure, from byte 1792.
const (
	IDENTIFY_IOCCSZ = 1792 // uint32: I/O Queue Command Capsule Supported Size, in 16 bytes
	IDENTIFY_IORCSZ = 1796 // uint32: I/O Queue Response Capsule Supported Size, in 16 bytes
	IDENTIFY_ICDOFF = 1800 // uint16: In Capsule Data Offset, in 16 bytes
	IDENTIFY_MSDBD  = 1803 // uint8: Maximum SGL Data Block Descriptors
)

// Fields of SGLS in the Identify Controller data structure.
const (
	SGLS_SUPPORTED = 1 << 0
	SGLS_KEYED     = 1 << 2
	SGLS_OFFSET    = 1 << 20 // in-capsule data is named by an offset
)

// DiscoveryNQN is the name of every discovery subsystem.
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"
