package rm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/culvert-io/culvert/gpu"
)

// verified returns w if it shows the memory that it should, and closes it
// otherwise.
func (m *Mapper) verified(w *Window) (*Window, error) {
	if err := m.verify(w); err != nil {
		return nil, errors.Join(unavailable("self-check", err), w.Close())
	}
	return w, nil
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
