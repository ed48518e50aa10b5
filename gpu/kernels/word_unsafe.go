package kernels

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
)

// A word is a result in memory that launches on several streams may change
// concurrently. Exactly one of its fields is set.
type word struct {
	w32   *atomic.Uint32
	w64   *atomic.Uint64
	split [][]byte // a word that is split or not aligned in host memory
}

// splitMu replaces atomic operations on split words.
var splitMu sync.Mutex

// withWord calls do with the word of size 4 or 8 at a, which must be aligned, as
// on a GPU.
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

// update replaces the word's value by f of it.
func (w word) update(f func(uint64) uint64) {
	for {
		switch old := w.load(); {
		case w.w32 != nil && !w.w32.CompareAndSwap(uint32(old), uint32(f(old))):
		case w.w64 != nil && !w.w64.CompareAndSwap(old, f(old)):
		case w.split != nil:
			w.putSplit(f(old))
			return
		default:
			return
		}
	}
}

func (w word) add(n uint64)    { w.update(func(old uint64) uint64 { return old + n }) }
func (w word) xor(bits uint64) { w.update(func(old uint64) uint64 { return old ^ bits }) }
func (w word) store(v uint64)  { w.update(func(uint64) uint64 { return v }) }

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
