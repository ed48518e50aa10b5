package gdrcopy

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/wc"
)

// A Buffer is GDRCopy's gdr_mh_t: pinned memory. It is safe for concurrent use;
// copies run beside each other, and Unmap waits for them.
type Buffer struct {
	s    *Session
	addr gpu.Addr
	size uint64

	mu    sync.RWMutex // held for reading by copies
	pin   Pin          // nil when unpinned
	mem   []byte       // nil when unmapped
	unmap func() error
}

// Info describes the buffer.
func (b *Buffer) Info() (Info, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.pin == nil {
		return Info{}, b.fail("info", os.ErrClosed)
	}
	i := b.pin.Info()
	if i.Mapped = b.mem != nil; !i.Mapped {
		i.Type = MappingNone
	}
	return i, nil
}

// Map makes the buffer visible to the CPU. A buffer has one mapping: a second
// is EAGAIN, as with GDRCopy.
func (b *Buffer) Map() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pin == nil:
		return b.fail("map", os.ErrClosed)
	case b.mem != nil:
		return b.fail("map", fmt.Errorf("it is mapped already: %w", syscall.EAGAIN))
	}
	mem, unmap, err := b.pin.Map()
	if err != nil {
		return b.fail("map", err)
	}
	if uint64(len(mem)) != b.size {
		_ = unmap() // the backend is at fault, whatever this says
		return b.fail("map", fmt.Errorf("the backend has mapped %d bytes", len(mem)))
	}
	b.mem, b.unmap = mem, unmap
	return nil
}

// Unmap ends what Map began. It is EINVAL where nothing is mapped.
func (b *Buffer) Unmap() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mem == nil {
		return b.fail("unmap", fmt.Errorf("it is not mapped: %w", syscall.EINVAL))
	}
	return b.unmapLocked()
}

// unmapLocked unmaps. What cannot be unmapped stays pinned for good: its
// addresses must not lead to somebody else's memory.
func (b *Buffer) unmapLocked() error {
	unmap := b.unmap
	b.mem, b.unmap = nil, nil
	if err := unmap(); err != nil {
		b.pin = nil
		b.s.forget(b)
		return b.fail("unmap", err)
	}
	return nil
}

// CopyTo writes src to the buffer from offset off on, at any alignment. GPU
// work that is submitted afterwards sees it.
func (b *Buffer) CopyTo(off uint64, src []byte) (err error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if err := b.check(off, len(src)); err != nil {
		return b.fail("copy to", err)
	}
	defer wc.Guard(wc.Arm(), &err)
	wc.Store(b.mem[off:], src)
	wc.Fence()
	return nil
}

// CopyFrom reads len(dst) bytes of the buffer from offset off on, at any
// alignment.
func (b *Buffer) CopyFrom(dst []byte, off uint64) (err error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if err := b.check(off, len(dst)); err != nil {
		return b.fail("copy from", err)
	}
	defer wc.Guard(wc.Arm(), &err)
	wc.Load(dst, b.mem[off:])
	return nil
}

func (b *Buffer) check(off uint64, n int) error {
	switch {
	case b.pin == nil:
		return os.ErrClosed
	case b.mem == nil:
		return fmt.Errorf("it is not mapped: %w", syscall.EINVAL)
	case off > b.size || uint64(n) > b.size-off:
		return fmt.Errorf("%d bytes at %d are out of range: %w", n, off, syscall.EINVAL)
	}
	return nil
}

// Unpin lets go of the memory, and unmaps it where that was not done. A second
// call does nothing.
func (b *Buffer) Unpin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pin == nil {
		return nil
	}
	if b.mem != nil {
		if err := b.unmapLocked(); err != nil {
			return err
		}
	}
	err := b.pin.Unpin()
	b.pin = nil
	b.s.forget(b)
	if err != nil {
		return b.fail("unpin", err)
	}
	return nil
}

func (b *Buffer) fail(op string, err error) error {
	return fmt.Errorf("gdrcopy: %s buffer of %d bytes at %v: %w", op, b.size, b.addr, err)
}
