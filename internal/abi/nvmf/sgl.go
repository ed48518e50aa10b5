package nvmf

import (
	"encoding/binary"
	"fmt"

	"github.com/culvert-io/culvert/internal/abi/nvme"
)

// Descriptor types of an SGL, bits 7:4 of its last byte.
const (
	SGL_DATA_BLOCK       = 0x0
	SGL_KEYED_DATA_BLOCK = 0x4
)

// Subtypes, bits 3:0.
const (
	SGL_ADDRESS    = 0x0
	SGL_OFFSET     = 0x1
	SGL_INVALIDATE = 0xf // invalidate the key after the command
)

// FLAGS_SGL in the flags of a command says that its data pointer is an SGL; in
// Fabrics it always is.
const FLAGS_SGL = 1 << 6

// Status codes for bad SGLs.
const (
	SGL_LENGTH_INVALID nvme.Status = 0x00f
	SGL_TYPE_INVALID   nvme.Status = 0x011
	SGL_OFFSET_INVALID nvme.Status = 0x016
)

// MaxKeyed is the length limit of a keyed data block, in bytes: the length has 24
// bits.
const MaxKeyed = 1<<24 - 1

// An SGL is the data pointer of a command: a keyed data block in memory of the
// host, or a data block in the capsule, at an offset behind the command.
type SGL struct {
	Type, Subtype uint8
	Addr          uint64 // or the offset
	Len           uint32
	Key           uint32 // of a keyed data block
}

// Keyed describes n bytes at addr that key gives access to.
func Keyed(addr uint64, n, key uint32) SGL {
	return SGL{Type: SGL_KEYED_DATA_BLOCK, Subtype: SGL_ADDRESS, Addr: addr, Len: n, Key: key}
}

// InCapsule describes n bytes at an offset into the data of the capsule.
func InCapsule(off uint64, n uint32) SGL {
	return SGL{Type: SGL_DATA_BLOCK, Subtype: SGL_OFFSET, Addr: off, Len: n}
}

// Put writes the descriptor into a command.
func (s SGL) Put(c *nvme.Command) error {
	if s.Type == SGL_KEYED_DATA_BLOCK && s.Len > MaxKeyed {
		return fmt.Errorf("keyed data block of %d bytes must have at most %d", s.Len, MaxKeyed)
	}
	b := s.Bytes()
	c.Flags |= FLAGS_SGL
	c.PRP1, c.PRP2 = binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
	return nil
}

// Bytes is the descriptor as it stands in a command. The length of a keyed data
// block is at most MaxKeyed.
func (s SGL) Bytes() (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], s.Addr)
	binary.LittleEndian.PutUint32(b[8:], s.Len)
	if s.Type == SGL_KEYED_DATA_BLOCK { // the key begins where the fourth byte of the length would be
		binary.LittleEndian.PutUint32(b[11:], s.Key)
	}
	b[15] = s.Type<<4 | s.Subtype
	return b
}

// SGLOf reads the descriptor of a command.
func SGLOf(c *nvme.Command) SGL {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], c.PRP1)
	binary.LittleEndian.PutUint64(b[8:], c.PRP2)
	s := SGL{Type: b[15] >> 4, Subtype: b[15] & 0xf, Addr: c.PRP1, Len: binary.LittleEndian.Uint32(b[8:])}
	if s.Type == SGL_KEYED_DATA_BLOCK {
		s.Len &= MaxKeyed
		s.Key = binary.LittleEndian.Uint32(b[11:])
	}
	return s
}
