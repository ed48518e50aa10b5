package block

import (
	"sync"

	"golang.org/x/sys/unix"
)

// A Memory is a drive without a file. It is safe for concurrent use.
type Memory struct {
	mu sync.RWMutex
	b  []byte
}

// NewMemory makes a drive of n bytes, all zero.
func NewMemory(n int64) *Memory { return &Memory{b: make([]byte, n)} }

// Size is where the drive ends.
func (m *Memory) Size() (int64, error) { return int64(len(m.b)), nil }

// ReadV fills the segments, in order, from off, up to the drive's end.
func (m *Memory) ReadV(segs [][]byte, off int64) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.move(segs, off, func(mem, seg []byte) int { return copy(seg, mem) })
}

// WriteV writes the segments, in order, at off, up to the drive's end.
func (m *Memory) WriteV(segs [][]byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.move(segs, off, func(mem, seg []byte) int { return copy(mem, seg) })
}

func (m *Memory) move(segs [][]byte, off int64, each func(mem, seg []byte) int) (moved int, err error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	for _, seg := range segs {
		at := min(off+int64(moved), int64(len(m.b)))
		moved += each(m.b[at:], seg)
	}
	return moved, nil
}

// Zero makes n bytes from off read as zeros.
func (m *Memory) Zero(off, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if off < 0 || n < 0 {
		return unix.EINVAL
	}
	end := int64(len(m.b))
	off = min(off, end)
	clear(m.b[off : off+min(n, end-off)])
	return nil
}

// Flush has nothing to do.
func (m *Memory) Flush() error { return nil }
