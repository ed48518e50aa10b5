package rm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/wc"
)

// The handles of KindDevice memory are not documented, so duplicate is tested on
// newly allocated memory, by changing it. Memory of the caller is only read: a
// word that is changed and restored could undo the write of a running kernel.

// trialSize is a page of the GPU.
const trialSize = 64 << 10

// try tests whether a duplicated object is the memory that it is taken for.
func (m *Mapper) try(d *device) (err error) {
	a, err := m.gpu.Alloc(gpu.KindDevice, trialSize, 0)
	if err != nil {
		return unavailable("self-check", err)
	}
	defer func() { err = errors.Join(err, m.gpu.Free(a)) }()
	p, err := m.gpu.Pointer(a)
	if err != nil {
		return unavailable("self-check", err)
	}
	w, err := m.duplicate(d, request{addr: a, n: trialSize, alloc: p})
	if err != nil {
		return err
	}
	if err := m.verify(w); err != nil {
		return errors.Join(unavailable("self-check", err), w.Close())
	}
	return w.Close()
}

// compared returns w if it has the data that the driver reads, else closes it.
func (m *Mapper) compared(w *Mapping) (*Mapping, error) {
	if err := m.compare(w); err != nil {
		return nil, errors.Join(unavailable("self-check", err), w.Close())
	}
	return w, nil
}

// compare reads both ends and some places between, through the driver and the
// mapping. Running work may change the memory in between, so it retries.
func (m *Mapper) compare(w *Mapping) error {
	const chances, places, width = 4, 8, 64
	n := min(width, w.Len())
	last := uint64(w.Len() - n)
	for i := range places {
		off := [...]uint64{0, last}[i%2]
		if i >= 2 {
			off = rand.Uint64N(last + 1)
		}
		var err error
		for range chances {
			if err = m.compareAt(w, off, n); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Mapper) compareAt(w *Mapping, off uint64, n int) error {
	var buf [128]byte
	driver, mapped := buf[:n], buf[64:64+n]
	if err := m.gpu.Synchronize(); err != nil {
		return err
	}
	if err := m.gpu.CopyOut(driver, w.Base()+gpu.Addr(off)); err != nil {
		return err
	}
	if err := w.load(mapped, off); err != nil {
		return err
	}
	if !bytes.Equal(driver, mapped) {
		return fmt.Errorf("at %v the driver reads %x, the mapping has %x", w.Base()+gpu.Addr(off), driver, mapped)
	}
	return nil
}

// verify changes the first and the last word with the driver and reads them
// through the mapping.
func (m *Mapper) verify(w *Mapping) error {
	word := min(8, w.Len())
	for _, off := range []uint64{0, uint64(w.Len() - word)} {
		for range 8 / word { // at least 64 random bits in total
			if err := m.verifyWord(w, off, word); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Mapper) verifyWord(w *Mapping, off uint64, n int) (err error) {
	a := w.Base() + gpu.Addr(off)
	var buf [24]byte
	old, fresh, seen := buf[:n], buf[8:8+n], buf[16:16+n]
	if err := m.gpu.CopyOut(old, a); err != nil {
		return err
	}
	var bits [8]byte
	binary.NativeEndian.PutUint64(bits[:], rand.Uint64())
	copy(fresh, bits[:])
	defer func() { err = errors.Join(err, m.write(a, old)) }()
	if err := m.write(a, fresh); err != nil {
		return err
	}
	if err := w.load(seen, off); err != nil {
		return err
	}
	if !bytes.Equal(seen, fresh) {
		return fmt.Errorf("the driver wrote %x at %v, the mapping has %x", fresh, a, seen)
	}
	return nil
}

// write writes b and waits until it is in GPU memory: the copy may return
// earlier.
func (m *Mapper) write(a gpu.Addr, b []byte) error {
	if err := m.gpu.CopyIn(a, b); err != nil {
		return err
	}
	return m.gpu.Synchronize()
}

// load copies from a mapping, whose memory may be gone.
func (m *Mapping) load(dst []byte, off uint64) (err error) {
	defer wc.Guard(wc.Arm(), &err)
	wc.Load(dst, m.mem[off:])
	return nil
}
