package cufiletest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// random is where the bytes of files and memory come from.
var random = func() []byte {
	b := make([]byte, 8<<20)
	rand.NewChaCha8([32]byte{'c', 'u'}).Read(b)
	return b
}()

// A model is what a file must hold. It takes memory only for what was written.
type model struct {
	size   int64
	chunks map[int64][]byte // by number
}

const chunkSize = 64 << 10

func newModel(f File) *model {
	m := &model{chunks: map[int64][]byte{}}
	for _, r := range f.data() {
		m.write(random[r.Off:r.Off+r.Len], r.Off)
	}
	m.truncate(f.Size)
	return m
}

// data are the ranges that are no holes.
func (f File) data() []Range {
	var list []Range
	at := int64(0)
	for _, h := range append(f.Holes[:len(f.Holes):len(f.Holes)], Range{f.Size, 0}) {
		if h.Off > at {
			list = append(list, Range{at, h.Off - at})
		}
		at = h.Off + h.Len
	}
	return list
}

// make writes the file that the model begins with.
func (f File) make(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for _, r := range f.data() {
		if _, err := file.WriteAt(random[r.Off:r.Off+r.Len], r.Off); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(file.Truncate(f.Size), file.Close())
}

func (m *model) write(p []byte, off int64) {
	m.size = max(m.size, off+int64(len(p)))
	for len(p) > 0 {
		c := m.chunks[off/chunkSize]
		if c == nil {
			c = make([]byte, chunkSize)
			m.chunks[off/chunkSize] = c
		}
		n := copy(c[off%chunkSize:], p)
		p, off = p[n:], off+int64(n)
	}
}

// read fills p up to the end of the file and returns how much that was.
func (m *model) read(p []byte, off int64) int64 {
	p = p[:min(int64(len(p)), max(m.size-off, 0))]
	total := int64(len(p))
	for len(p) > 0 {
		var n int
		if c := m.chunks[off/chunkSize]; c != nil {
			n = copy(p, c[off%chunkSize:])
		} else {
			n = min(len(p), chunkSize-int(off%chunkSize))
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
	return total
}

func (m *model) truncate(size int64) {
	for i, c := range m.chunks {
		if keep := size - i*chunkSize; keep <= 0 {
			delete(m.chunks, i)
		} else if keep < chunkSize {
			clear(c[keep:])
		}
	}
	m.size = size
}

// check compares the file with the model, where either has data.
func (m *model) check(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() != m.size {
		return fmt.Errorf("the file has %d bytes, want %d", st.Size(), m.size)
	}
	for i := range m.chunks {
		if err := m.checkChunk(f, i); err != nil {
			return err
		}
	}
	for off := int64(0); ; {
		if off, err = unix.Seek(int(f.Fd()), off, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			return nil
		} else if err != nil {
			return err
		}
		if err := m.checkChunk(f, off/chunkSize); err != nil {
			return err
		}
		off = (off/chunkSize + 1) * chunkSize
	}
}

func (m *model) checkChunk(f *os.File, i int64) error {
	var got, want [chunkSize]byte
	n, err := f.ReadAt(got[:], i*chunkSize)
	if err != nil && err != io.EOF {
		return err
	}
	k := m.read(want[:], i*chunkSize)
	if int64(n) != k {
		return fmt.Errorf("the file gives %d bytes at %d, want %d", n, i*chunkSize, k)
	}
	if at := firstDifference(got[:n], want[:n]); at >= 0 {
		return fmt.Errorf("the file differs at %d", i*chunkSize+int64(at))
	}
	return nil
}

// firstDifference is where a and b differ, or -1.
func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
