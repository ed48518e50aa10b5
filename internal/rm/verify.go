package rm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/culvert-io/culvert/gpu"
)

// Where CUDA keeps the handles of plain memory is not documented, so the way is
// tried before it is used: on memory of the mapper's own, by changing it. Memory
// of others is only looked at, because GPU work may be using it: a word that is
// put back a moment later could undo what a kernel has written meanwhile.

// trialSize is a page of the GPU.
const trialSize = 64 << 10

// try finds out, once, whether duplicated objects show what they should.
func (m *Mapper) try(d *Device) error {
	m.trial.Do(func() { m.trialErr = m.tryOnce(d) })
	return m.trialErr
}

func (m *Mapper) tryOnce(d *Device) (err error) {
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

// compared returns w if it shows what the driver shows, and closes it otherwise.
func (m *Mapper) compared(w *Window) (*Window, error) {
	if err := m.compare(w); err != nil {
		return nil, errors.Join(unavailable("self-check", err), w.Close())
	}
	return w, nil
}

// compare looks at both ends and at some places between. Work that is under way
// may change the memory between two looks, so a difference gets more chances.
func (m *Mapper) compare(w *Window) error {
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

func (m *Mapper) compareAt(w *Window, off uint64, n int) error {
	var buf [128]byte
	driver, window := buf[:n], buf[64:64+n]
	if err := m.gpu.Synchronize(); err != nil {
		return err
	}
	if err := m.gpu.CopyOut(driver, w.Base()+gpu.Addr(off)); err != nil {
		return err
	}
	if err := w.Load(window, off); err != nil {
		return err
	}
	if !bytes.Equal(driver, window) {
		return fmt.Errorf("at %v the driver reads %x, the mapping shows %x", w.Base()+gpu.Addr(off), driver, window)
	}
	return nil
}

// verify changes the first and the last word of the window by way of the driver
// and looks for the change through the window.
func (m *Mapper) verify(w *Window) error {
	word := min(8, w.Len())
	for _, off := range []uint64{0, uint64(w.Len() - word)} {
		for range 8 / word { // together at least 32 bits of evidence
			if err := m.verifyWord(w, off, word); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Mapper) verifyWord(w *Window, off uint64, n int) (err error) {
	a := w.Base() + gpu.Addr(off)
	var buf [24]byte
	old, fresh, seen := buf[:n], buf[8:8+n], buf[16:16+n]
	if err := m.gpu.CopyOut(old, a); err != nil {
		return err
	}
	var bits [8]byte
	binary.NativeEndian.PutUint64(bits[:], rand.Uint64())
	copy(fresh, bits[:])
	defer func() { err = errors.Join(err, m.settle(a, old)) }()
	if err := m.settle(a, fresh); err != nil {
		return err
	}
	if err := w.Load(seen, off); err != nil {
		return err
	}
	if !bytes.Equal(seen, fresh) {
		return fmt.Errorf("the driver wrote %x at %v, the mapping shows %x", fresh, a, seen)
	}
	return nil
}

// settle writes b and waits until it is in GPU memory: the copy alone may
// return earlier.
func (m *Mapper) settle(a gpu.Addr, b []byte) error {
	if err := m.gpu.CopyIn(a, b); err != nil {
		return err
	}
	return m.gpu.Synchronize()
}
