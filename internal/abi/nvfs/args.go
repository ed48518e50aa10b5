package nvfs

import "encoding/binary"

var le = binary.LittleEndian

// An Arg is the argument of any request: a union.
type Arg [ArgSize]byte

// Return is the module's result: a number of bytes, or -errno.
func (a *Arg) Return() int64 { return int64(le.Uint64(a[ReturnAt:])) }

// SetReturn sets the result.
func (a *Arg) SetReturn(v int64) { le.PutUint64(a[ReturnAt:], uint64(v)) }

// MapArgs are the arguments of MAP (48 bytes).
type MapArgs struct {
	Size           int64  // of the GPU buffer
	PDevInfo       uint64 // domain<<32 | bus<<8 | dev<<3 | func
	CPUVAddr       uint64 // of the shadow buffer
	GPUVAddr       uint64
	EndFenceAddr   uint64 // of a page
	SbufBlock      uint32 // blocks of the shadow buffer
	IsBounceBuffer uint16
	_              [2]byte
}

// MapArgsSize is the size of MapArgs in bytes.
const MapArgsSize = 48

// Encode writes the arguments to the beginning of b.
func (m *MapArgs) Encode(b []byte) { encode(b, m) }

// Decode reads them.
func (m *MapArgs) Decode(b []byte) { decode(b, m) }

// Bits of IOArgs. The bits from OpShift are the direction in a batch.
const (
	BitSync       = 1 << 0
	BitHipri      = 1 << 1
	BitAllowReads = 1 << 2 // a file open only for writing may be read
	BitUseRkeys   = 1 << 3
	OpShift       = 4
	OpMask        = 7 << OpShift
	OpRead        = 0 << OpShift
	OpWrite       = 1 << OpShift
)

// IOArgs are the arguments of READ, WRITE and an entry of a batch (80 bytes).
type IOArgs struct {
	CPUVAddr      uint64
	Offset        int64 // in the file
	Size          uint64
	EndFenceValue uint64 // published when an asynchronous transfer ends
	IoctlReturn   int64
	Inum          uint64 // the file's identity starts here
	Generation    uint32 // 0: not compared
	Majdev        uint32
	Mindev        uint32
	DevPtrOff     uint64 // in the GPU buffer
	FD            int32
	Bits          uint8
}

// IOArgsSize is the size of IOArgs in bytes.
const IOArgsSize = 80

// Encode writes the arguments to the beginning of b.
func (a *IOArgs) Encode(b []byte) {
	le.PutUint64(b[0:], a.CPUVAddr)
	le.PutUint64(b[8:], uint64(a.Offset))
	le.PutUint64(b[16:], a.Size)
	le.PutUint64(b[24:], a.EndFenceValue)
	le.PutUint64(b[32:], uint64(a.IoctlReturn))
	le.PutUint64(b[40:], a.Inum)
	le.PutUint32(b[48:], a.Generation)
	le.PutUint32(b[52:], a.Majdev)
	le.PutUint32(b[56:], a.Mindev)
	le.PutUint64(b[60:], a.DevPtrOff)
	le.PutUint32(b[72:], uint32(a.FD))
	b[76] = a.Bits
}

// Decode reads them.
func (a *IOArgs) Decode(b []byte) {
	a.CPUVAddr = le.Uint64(b[0:])
	a.Offset = int64(le.Uint64(b[8:]))
	a.Size = le.Uint64(b[16:])
	a.EndFenceValue = le.Uint64(b[24:])
	a.IoctlReturn = int64(le.Uint64(b[32:]))
	a.Inum = le.Uint64(b[40:])
	a.Generation = le.Uint32(b[48:])
	a.Majdev = le.Uint32(b[52:])
	a.Mindev = le.Uint32(b[56:])
	a.DevPtrOff = le.Uint64(b[60:])
	a.FD = int32(le.Uint32(b[72:]))
	a.Bits = b[76]
}

// BatchArgs are the arguments of BATCH_IO (24 bytes).
type BatchArgs struct {
	CtxID     uint64
	Nents     uint64
	IOEntries uint64 // address of the entries
}

// BatchArgsSize is the size of BatchArgs in bytes. The module copies no more
// back.
const BatchArgsSize = 24

// Encode writes the arguments to the beginning of b.
func (a *BatchArgs) Encode(b []byte) { encode(b, a) }

// Decode reads them.
func (a *BatchArgs) Decode(b []byte) { decode(b, a) }

// encode writes a struct without padding. It uses reflection, so IOArgs, which
// every transfer has, are encoded by hand.
func encode(b []byte, v any) {
	if _, err := binary.Encode(b, le, v); err != nil {
		panic("nvfs: " + err.Error()) // b is too short
	}
}

func decode(b []byte, v any) {
	if _, err := binary.Decode(b, le, v); err != nil {
		panic("nvfs: " + err.Error()) // b is too short
	}
}
