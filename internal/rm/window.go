package rm

import (
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/wc"
)

// A Window is a range of GPU memory that the CPU can reach. It is safe for
// concurrent use, and using it allocates nothing.
type Window struct {
	base gpu.Addr
	way  Way
	mem  []byte // of exactly the range

	mu     sync.RWMutex // held for reading while mem is in use
	closed bool
	unmap  func() error
}

// Base is the GPU's address of the first byte.
func (w *Window) Base() gpu.Addr { return w.base }

// Len is the size in bytes.
func (w *Window) Len() int { return len(w.mem) }

// Way is how the memory was mapped.
func (w *Window) Way() Way { return w.way }

// Contains reports whether n bytes from a lie in the window.
func (w *Window) Contains(a gpu.Addr, n uint64) bool {
	off := uint64(a - w.base)
	return a >= w.base && off <= uint64(len(w.mem)) && n <= uint64(len(w.mem))-off
}

// Acquire lends the memory, for a system call that reads into it; Release gives
// it back. Loads and stores of one's own should go through Load and Store.
func (w *Window) Acquire() ([]byte, error) {
	w.mu.RLock()
	if w.closed {
		w.mu.RUnlock()
		return nil, ErrClosed
	}
	return w.mem, nil
}

// Bytes is the memory, for those who know by other means that the window is not
// closed meanwhile: Acquire writes to memory that all users of a window share.
func (w *Window) Bytes() []byte { return w.mem }

// Release ends what Acquire began.
func (w *Window) Release() { w.mu.RUnlock() }

// Store copies src to offset off and sends it on its way: GPU work that is
// submitted afterwards sees it.
func (w *Window) Store(off uint64, src []byte) (err error) {
	mem, err := w.Acquire()
	if err != nil {
		return err
	}
	defer w.Release()
	if !inside(mem, off, len(src)) {
		return w.outside("store", off, len(src))
	}
	defer wc.Guard(wc.Arm(), &err)
	wc.Store(mem[off:], src)
	wc.Fence()
	return nil
}

// Load copies len(dst) bytes from offset off. Whoever wrote them must have been
// synchronised. It is slow: above 4 KiB a copy by the GPU is faster.
func (w *Window) Load(dst []byte, off uint64) (err error) {
	mem, err := w.Acquire()
	if err != nil {
		return err
	}
	defer w.Release()
	if !inside(mem, off, len(dst)) {
		return w.outside("load", off, len(dst))
	}
	defer wc.Guard(wc.Arm(), &err)
	wc.Load(dst, mem[off:])
	return nil
}

func inside(mem []byte, off uint64, n int) bool {
	return off <= uint64(len(mem)) && uint64(n) <= uint64(len(mem))-off
}

func (w *Window) outside(op string, off uint64, n int) error {
	return fmt.Errorf("%s %d bytes at %d of a window of %d bytes at %v: out of range", op, n, off, len(w.mem), w.base)
}

// Close waits for uses in progress and takes the memory out of the address
// space. A second call does nothing.
func (w *Window) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return w.unmap()
}
