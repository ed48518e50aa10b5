package kernels

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
)

// A word is a result in memory that launches on several streams may change at
// the same time. Exactly one of its fields is set.
type word struct {
	w32   *atomic.Uint32
	w64   *atomic.Uint64
	split [][]byte // a word that is not whole and aligned in one segment
}

// splitMu stands in for atomicity where a word is split.
var splitMu sync.Mutex

// withWord lends the word of size 4 or 8 at a. As on a GPU it must be aligned.
func withWord(m Mem, a gpu.Addr, size uint64, do func(word)) error {
	if uint64(a)%size != 0 {
		return fmt.Errorf("word of %d bytes at %v: %w", size, a, gpu.ErrMisalignedAddress)
	}
	segs, err := bytesOf(m, a, size)
	if err != nil {
		return err
	}
	p := unsafe.Pointer(unsafe.SliceData(segs[0]))
	whole := uint64(len(segs[0])) == size && uint64(uintptr(p))%size == 0
	switch {
	case whole && size == 4:
		do(word{w32: (*atomic.Uint32)(p)})
	case whole:
		do(word{w64: (*atomic.Uint64)(p)})
	default:
		splitMu.Lock()
		defer splitMu.Unlock()
		do(word{split: segs})
	}
	return nil
}

func (w word) add(n uint64) {
	switch {
	case w.w32 != nil:
		w.w32.Add(uint32(n))
	case w.w64 != nil:
		w.w64.Add(n)
	default:
		w.putSplit(w.getSplit() + n)
	}
}

func (w word) xor(bits uint64) {
	switch {
	case w.w32 != nil:
		for {
			old := w.w32.Load()
			if w.w32.CompareAndSwap(old, old^uint32(bits)) {
				return
			}
		}
	case w.w64 != nil:
		for {
			old := w.w64.Load()
			if w.w64.CompareAndSwap(old, old^bits) {
				return
			}
		}
	default:
		w.putSplit(w.getSplit() ^ bits)
	}
}

func (w word) store(v uint64) {
	switch {
	case w.w32 != nil:
		w.w32.Store(uint32(v))
	case w.w64 != nil:
		w.w64.Store(v)
	default:
		w.putSplit(v)
	}
}

func (w word) load() uint64 {
	switch {
	case w.w32 != nil:
		return uint64(w.w32.Load())
	case w.w64 != nil:
		return w.w64.Load()
	}
	return w.getSplit()
}

func (w word) getSplit() uint64 {
	var raw [8]byte
	n := 0
	for _, s := range w.split {
		n += copy(raw[n:], s)
	}
	return binary.LittleEndian.Uint64(raw[:])
}

func (w word) putSplit(v uint64) {
	var raw [8]byte
	binary.LittleEndian.PutUint64(raw[:], v)
	n := 0
	for _, s := range w.split {
		n += copy(s, raw[n:])
	}
}
