package storage

import (
	"sync"

	"golang.org/x/sys/unix"
)

// A fileMapping is a file mapped for reading, all of it, from its first use until the
// file is closed. Threads that map and unmap the ranges that they read wait for each
// other in the kernel.
type fileMapping struct {
	mu    sync.Mutex
	mem   []byte
	tried bool
}

// A MappedRange is a range of a file in memory. A file that others cut short faults.
type MappedRange struct {
	pages   []byte // whole pages around the range
	skip, n int64
}

// Bytes is the range. It is read-only.
func (r MappedRange) Bytes() []byte { return r.pages[r.skip : r.skip+r.n] }

// Drop forgets the addresses of the range, so that unmapping the file is quick in the
// end. The page cache keeps its pages; other readers of the range fault again.
func (r MappedRange) Drop() error { return unix.Madvise(r.pages, unix.MADV_DONTNEED) }

// Mapped returns a range of the file that is mapped; ok is false if the file is not to
// be read so. It must not be used after the file was closed.
func (s *Stream) Mapped(off, n int64) (r MappedRange, ok bool) {
	if s.mapped == nil {
		return r, false
	}
	return s.mapped(off, n)
}

// mapsCheaply are file systems whose files gain by being mapped. On ext4 a mapping was
// no faster than pread on an H200 machine, so its risks are not worth taking.
var mapsCheaply = map[string]bool{"tmpfs": true}

func (f *File) mapped(off, n int64) (r MappedRange, ok bool) {
	var st unix.Stat_t
	if f.Facts.Block || f.buffered < 0 || !f.Readable() || !mapsCheaply[f.Facts.FS] || unix.Fstat(f.buffered, &st) != nil {
		return r, false
	}
	if off+n > st.Size || st.Blocks*512 < st.Size { // in tmpfs a mapped hole becomes a page
		return r, false
	}
	mem := f.mapping.get(f.buffered, st.Size)
	from, to := off&^(pageSize-1), (off+n+pageSize-1)&^(pageSize-1)
	if to > int64(len(mem)) {
		return r, false // not mapped, or it has grown since
	}
	return MappedRange{mem[from:to], off - from, n}, true
}

// get maps a file at the first call.
func (m *fileMapping) get(fd int, size int64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tried {
		return m.mem
	}
	m.tried = true
	mem, err := unix.Mmap(fd, 0, int((size+pageSize-1)&^(pageSize-1)), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	// Or else pages would be marked as accessed when their addresses are forgotten.
	if unix.Madvise(mem, unix.MADV_SEQUENTIAL) != nil {
		unix.Munmap(mem)
		return nil
	}
	m.mem = mem
	return mem
}

func (m *fileMapping) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mem != nil {
		unix.Munmap(m.mem)
	}
	m.mem, m.tried = nil, true
}
