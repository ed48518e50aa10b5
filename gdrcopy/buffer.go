package gdrcopy

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/wc"
)

// A Buffer is GDRCopy's gdr_mh_t: pinned memory. It is safe for concurrent use.
// Copies run in parallel; Unmap waits for them.
type Buffer struct {
	s    *Session
	addr gpu.Addr
	size uint64

	mu    sync.RWMutex // held for reading by copies
	pin   pinned       // nil when unpinned
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

// Map maps the buffer for the CPU. A buffer has one mapping: a second returns EAGAIN,
// as in GDRCopy.
func (b *Buffer) Map() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pin == nil:
		return b.fail("map", os.ErrClosed)
	case b.mem != nil:
		return b.fail("map", fmt.Errorf("already mapped: %w", syscall.EAGAIN))
	}
	mem, unmap, err := b.pin.Map()
	if err != nil {
		return b.fail("map", err)
	}
	if uint64(len(mem)) != b.size {
		_ = unmap() // the backend is at fault in any case
		return b.fail("map", fmt.Errorf("backend mapped %d bytes", len(mem)))
	}
	b.mem, b.unmap = mem, unmap
	return nil
}

// Bytes returns the mapped memory, of the size that was pinned; nil if it is not mapped.
// It is valid until Unmap. [Buffer.CopyTo] and [Buffer.CopyFrom] are faster than copy.
func (b *Buffer) Bytes() []byte {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.mem
}

// Revoked reports whether the memory was freed, which ended the pin: an access then faults.
// It is always false where pins are persistent ([SessionInfo]).
func (b *Buffer) Revoked() (bool, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.pin == nil {
		return false, b.fail("callback flag of", os.ErrClosed)
	}
	return b.pin.Revoked()
}

// Unmap undoes Map. It returns EINVAL if the buffer is not mapped.
func (b *Buffer) Unmap() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mem == nil {
		return b.fail("unmap", fmt.Errorf("not mapped: %w", syscall.EINVAL))
	}
	return b.unmapLocked()
}

// unmapLocked unmaps. Memory that cannot be unmapped stays pinned forever, so that a
// stale mapping never shows memory of another owner.
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

// CopyTo writes src to the buffer at offset off, at any alignment. GPU work that is
// submitted afterwards sees it.
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

// CopyFrom reads len(dst) bytes of the buffer at offset off, at any alignment.
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
		return fmt.Errorf("not mapped: %w", syscall.EINVAL)
	case off > b.size || uint64(n) > b.size-off:
		return fmt.Errorf("%d bytes at offset %d exceed the buffer: %w", n, off, syscall.EINVAL)
	}
	return nil
}

// Unpin unmaps and unpins the memory. A second call does nothing.
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
