package nvfs

import "fmt"

// The end-fence page has the results of READs that a return value cannot
// express.
const (
	MetaSize = 4096

	MetaFence   = 0  // u64: the end_fence_value of the last asynchronous transfer
	MetaResult  = 8  // s64: its bytes, or -errno
	MetaState   = 16 // u32
	MetaMagic   = 24 // u64: SPARSE_MAGIC
	MetaVersion = 32 // u32: 1
	MetaHoles   = 36 // u32: how many
	MetaOffset  = 40 // s64: in the file, of the window that the holes are in
	MetaList    = 48 // of {u16 start, u16 blocks}, relative to the window

	META_CLEAN  = 0
	META_SPARSE = 1
	META_DIED   = 2

	META_VERSION = 1
	MAX_HOLES    = 768
	SPARSE_MAGIC = 0xabc0cba1abc2cba3
	holeSize     = 4
	sparseEnd    = MetaList + MAX_HOLES*holeSize
)

// A Hole is a run of blocks that no device wrote.
type Hole struct{ Start, Blocks uint16 }

// A Sparse is the part of the page that a READ writes: the fields from MetaState.
type Sparse struct {
	State  uint32
	Offset int64
	Holes  []Hole
}

// AppendSparse appends the bytes of the page from MetaState on.
func AppendSparse(b []byte, s *Sparse) []byte {
	b = le.AppendUint64(b, uint64(s.State))
	b = le.AppendUint64(b, SPARSE_MAGIC)
	b = le.AppendUint32(b, META_VERSION)
	b = le.AppendUint32(b, uint32(len(s.Holes)))
	b = le.AppendUint64(b, uint64(s.Offset))
	for _, h := range s.Holes {
		b = le.AppendUint16(b, h.Start)
		b = le.AppendUint16(b, h.Blocks)
	}
	return b
}

// ParseSparse reads a page, and reuses the memory of s.Holes. The page must have
// been cleared before the READ: the module does not remove earlier holes.
func ParseSparse(page []byte, s *Sparse) error {
	s.Holes = s.Holes[:0]
	if len(page) < sparseEnd {
		return fmt.Errorf("end-fence page of %d bytes, want at least %d", len(page), sparseEnd)
	}
	s.State = le.Uint32(page[MetaState:])
	s.Offset = int64(le.Uint64(page[MetaOffset:]))
	if s.State != META_SPARSE {
		return nil
	}
	if m, v := le.Uint64(page[MetaMagic:]), le.Uint32(page[MetaVersion:]); m != SPARSE_MAGIC || v != META_VERSION {
		return fmt.Errorf("end-fence page: magic %#x, version %d, want %#x, %d", m, v, uint64(SPARSE_MAGIC), META_VERSION)
	}
	n := le.Uint32(page[MetaHoles:])
	if n == 0 || n > MAX_HOLES {
		return fmt.Errorf("end-fence page: %d holes, want 1 to %d", n, MAX_HOLES)
	}
	end := uint32(0)
	for i := range n {
		p := page[MetaList+i*holeSize:]
		h := Hole{le.Uint16(p), le.Uint16(p[2:])}
		if h.Blocks == 0 || uint32(h.Start) < end || uint32(h.Start)+uint32(h.Blocks) > MAX_BLOCKS {
			return fmt.Errorf("end-fence page: hole %d covers blocks %d+%d, after block %d", i, h.Start, h.Blocks, end)
		}
		end = uint32(h.Start) + uint32(h.Blocks)
		s.Holes = append(s.Holes, h)
	}
	return nil
}
