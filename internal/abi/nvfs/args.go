package nvfs

import "encoding/binary"

var le = binary.LittleEndian

// An Arg is the argument of any request: a union.
type Arg [ArgSize]byte

// Return is what the module left: bytes, or -errno.
func (a *Arg) Return() int64 { return int64(le.Uint64(a[ReturnAt:])) }

// SetReturn leaves it.
func (a *Arg) SetReturn(v int64) { le.PutUint64(a[ReturnAt:], uint64(v)) }

// MapArgs are those of MAP (48 bytes).
type MapArgs struct {
	Size           int64  // of the GPU buffer
	PDevInfo       uint64 // domain<<32 | bus<<8 | dev<<3 | func
	CPUVAddr       uint64 // of the shadow buffer
	GPUVAddr       uint64
	EndFenceAddr   uint64 // of a page
	SbufBlock      uint32 // blocks of the shadow buffer
	IsBounceBuffer uint16
}

// MapArgsSize is the number of bytes that MapArgs take.
const MapArgsSize = 48

// Encode writes the arguments to the beginning of b.
func (m *MapArgs) Encode(b []byte) {
	le.PutUint64(b[0:], uint64(m.Size))
	le.PutUint64(b[8:], m.PDevInfo)
	le.PutUint64(b[16:], m.CPUVAddr)
	le.PutUint64(b[24:], m.GPUVAddr)
	le.PutUint64(b[32:], m.EndFenceAddr)
	le.PutUint32(b[40:], m.SbufBlock)
	le.PutUint16(b[44:], m.IsBounceBuffer)
}

// Decode reads them.
func (m *MapArgs) Decode(b []byte) {
	m.Size = int64(le.Uint64(b[0:]))
	m.PDevInfo = le.Uint64(b[8:])
	m.CPUVAddr = le.Uint64(b[16:])
	m.GPUVAddr = le.Uint64(b[24:])
	m.EndFenceAddr = le.Uint64(b[32:])
	m.SbufBlock = le.Uint32(b[40:])
	m.IsBounceBuffer = le.Uint16(b[44:])
}

// The bits of IOArgs. Those from OpShift on are the direction in a batch.
const (
	BitSync       = 1 << 0
	BitHipri      = 1 << 1
	BitAllowReads = 1 << 2 // a file open for writing alone may be read
	BitUseRkeys   = 1 << 3
	OpShift       = 4
	OpMask        = 7 << OpShift
	OpRead        = 0 << OpShift
	OpWrite       = 1 << OpShift
)

// IOArgs are those of READ, WRITE and of an entry of a batch (80 bytes).
type IOArgs struct {
	CPUVAddr      uint64
	Offset        int64 // in the file
	Size          uint64
	EndFenceValue uint64 // published when an asynchronous transfer ends
	IoctlReturn   int64
	Inum          uint64 // the file's identity, from here on
	Generation    uint32 // 0 is not compared
	Majdev        uint32
	Mindev        uint32
	DevPtrOff     uint64 // in the GPU buffer
	FD            int32
	Bits          uint8
}

// IOArgsSize is the number of bytes that IOArgs take.
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

// BatchArgs are those of BATCH_IO (24 bytes).
type BatchArgs struct {
	CtxID     uint64
	Nents     uint64
	IOEntries uint64 // address of the entries
}

// BatchArgsSize is the number of bytes that BatchArgs take, and all that is
// copied back.
const BatchArgsSize = 24

// Encode writes the arguments to the beginning of b.
func (a *BatchArgs) Encode(b []byte) {
	le.PutUint64(b[0:], a.CtxID)
	le.PutUint64(b[8:], a.Nents)
	le.PutUint64(b[16:], a.IOEntries)
}

// Decode reads them.
func (a *BatchArgs) Decode(b []byte) {
	a.CtxID, a.Nents, a.IOEntries = le.Uint64(b[0:]), le.Uint64(b[8:]), le.Uint64(b[16:])
}
