package nvme

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
)

// gpuPage is the size of the pages in which GPU memory is pinned.
const gpuPage = 64 << 10

// hostAlign is the alignment of allocated host memory: libnvm finds mappings by
// addresses rounded down to it.
const hostAlign = 64 << 10

// A Buffer is memory that is mapped for a controller.
type Buffer struct {
	c     *Controller
	table pageTable
	size  uint64
	host  []byte   // nil for GPU memory
	span  gpu.Span // zero for host memory
	unmap func() error
	free  func() error // of memory that the driver allocated; nil for the caller's

	// Guarded by Controller.bufMu.
	users  int // commands in flight
	closed bool
}

// Len is the size in bytes.
func (b *Buffer) Len() uint64 { return b.size }

// Bytes is the memory of a host buffer. It is nil for GPU memory and closed
// buffers.
func (b *Buffer) Bytes() []byte {
	b.c.bufMu.Lock()
	defer b.c.bufMu.Unlock()
	if b.closed {
		return nil
	}
	return b.host
}

// Span is the memory of a GPU buffer. It is zero for host memory.
func (b *Buffer) Span() gpu.Span { return b.span }

// AllocHost allocates n bytes of host memory, rounded up to whole pages, and
// maps them.
func (c *Controller) AllocHost(n int) (*Buffer, error) {
	if n <= 0 {
		return nil, fmt.Errorf("nvme %s: allocate %d bytes of host memory: size must be positive", c.Name(), n)
	}
	mem, free, err := allocPages((n + pageSize - 1) &^ (pageSize - 1))
	if err != nil {
		return nil, fmt.Errorf("nvme %s: %w", c.Name(), err)
	}
	b, err := c.MapHost(mem)
	if err != nil {
		return nil, errors.Join(err, free())
	}
	b.free = free
	return b, nil
}

// MapHost maps host memory, whose address and size must be multiples of 4 KiB.
// It must not move or be freed while it is mapped: use heap memory or a mapping.
func (c *Controller) MapHost(mem []byte) (*Buffer, error) {
	if len(mem) == 0 || len(mem)%pageSize != 0 || inPage(mem) != 0 {
		return nil, fmt.Errorf("nvme %s: map %d bytes of host memory: address and size must be multiples of %d (fix: use AllocHost)", c.Name(), len(mem), pageSize)
	}
	if err := c.mappable(); err != nil {
		return nil, err
	}
	pages, size, unmap, err := c.t.MapHost(mem)
	if err != nil {
		return nil, fmt.Errorf("nvme: %w", err)
	}
	return c.newBuffer(&Buffer{host: mem, size: uint64(len(mem))}, pages, size, unmap)
}

// AllocGPU allocates n bytes of GPU memory, rounded up to whole pages of 64
// KiB, and maps them.
func (c *Controller) AllocGPU(d gpu.Device, n uint64) (*Buffer, error) {
	return c.allocGPU(d, n, c.MapGPU)
}

func (c *Controller) allocGPU(d gpu.Device, n uint64, mapGPU func(gpu.Device, gpu.Span) (*Buffer, error)) (*Buffer, error) {
	asked := n
	if n = (n + gpuPage - 1) &^ (gpuPage - 1); n == 0 {
		return nil, fmt.Errorf("nvme %s: allocate %d bytes of GPU memory: invalid size", c.Name(), asked)
	}
	// Allocations are not aligned to pages: allocate one page more.
	base, err := d.Alloc(gpu.KindDevice, n+gpuPage-1, 0)
	if err != nil {
		return nil, fmt.Errorf("nvme %s: %w", c.Name(), err)
	}
	free := func() error { return d.Free(base) }
	off := -uint64(base) & (gpuPage - 1)
	b, err := mapGPU(d, gpu.Span{Dev: d.Info().Index, Base: base, Off: off, Len: n})
	if err != nil {
		return nil, errors.Join(err, free())
	}
	b.free = free
	return b, nil
}

// MapGPU maps device memory, whose address and size must be multiples of 64 KiB.
// Managed memory is rejected, because it moves. The first call for a GPU tests,
// with its own memory, whether the drive can reach the GPU, and fails with
// ErrUnreachable if not.
func (c *Controller) MapGPU(d gpu.Device, s gpu.Span) (*Buffer, error) {
	b, err := c.mapGPU(d, s)
	if err != nil {
		return nil, err
	}
	if err := c.checkReach(d); err != nil {
		return nil, errors.Join(fmt.Errorf("nvme %s: map %v: %w", c.Name(), s, err), b.Close())
	}
	return b, nil
}

func (c *Controller) mapGPU(d gpu.Device, s gpu.Span) (*Buffer, error) {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("nvme %s: map %v: %w", c.Name(), s, fmt.Errorf(format, args...))
	}
	if s.Len == 0 || uint64(s.Addr())%gpuPage != 0 || s.Len%gpuPage != 0 {
		return nil, fail("address and size must be multiples of %d (fix: use AllocGPU): %w", gpuPage, gpu.ErrInvalidValue)
	}
	p, err := d.Pointer(s.Addr())
	switch {
	case err != nil:
		return nil, fail("%w", err)
	case p.Kind == gpu.KindManaged:
		return nil, fail("managed memory cannot be pinned (fix: use device memory): %w", gpu.ErrInvalidValue)
	case !p.Kind.OnDevice():
		return nil, fail("%v memory is not on the GPU: %w", p.Kind, gpu.ErrInvalidValue)
	case !p.Contains(s.Addr(), s.Len):
		return nil, fail("range exceeds its allocation at %v of %d bytes: %w", p.Base, p.Size, gpu.ErrInvalidValue)
	}
	if err := c.mappable(); err != nil {
		return nil, err
	}
	// Without it the GPU's driver may return from a copy before the data is in
	// GPU memory, and the controller would read old data.
	if err := d.SetSyncMemops(s.Addr(), true); err != nil {
		return nil, fail("%w", err)
	}
	pages, size, unmap, err := c.t.MapGPU(s)
	if err != nil {
		return nil, fmt.Errorf("nvme: %w", err)
	}
	return c.newBuffer(&Buffer{span: s, size: s.Len}, pages, size, unmap)
}

// mappable fails if the controller is closed.
func (c *Controller) mappable() error {
	c.bufMu.Lock()
	defer c.bufMu.Unlock()
	if c.buffers == nil {
		return fmt.Errorf("nvme %s: map memory: %w", c.Name(), ErrClosed)
	}
	return nil
}

// newBuffer checks the result of a transport and registers the buffer.
func (c *Controller) newBuffer(b *Buffer, pages []uint64, size uint64, unmap func() error) (*Buffer, error) {
	ok := size >= pageSize && size%pageSize == 0 && uint64(len(pages)) == (b.size+size-1)/size
	for _, p := range pages {
		ok = ok && p%pageSize == 0
	}
	if !ok {
		return nil, errors.Join(fmt.Errorf("nvme %s: transport returned invalid addresses: %d bytes as %d pages of %d bytes", c.Name(), b.size, len(pages), size), unmap())
	}
	b.c, b.table, b.unmap = c, pageTable{pages, size}, unmap
	c.bufMu.Lock()
	defer c.bufMu.Unlock()
	if c.buffers == nil {
		return nil, errors.Join(fmt.Errorf("nvme %s: map memory: %w", c.Name(), ErrClosed), unmap())
	}
	c.buffers[b] = true
	return b, nil
}

// acquire keeps the buffer mapped for a command, unless it is closed.
func (b *Buffer) acquire() bool {
	b.c.bufMu.Lock()
	defer b.c.bufMu.Unlock()
	if b.closed {
		return false
	}
	b.users++
	return true
}

func (b *Buffer) release() {
	b.c.bufMu.Lock()
	defer b.c.bufMu.Unlock()
	b.users--
}

// Close unmaps the memory, and frees it if the driver allocated it. While
// commands use the memory it fails with ErrBusy and changes nothing. If GPU
// memory was freed while mapped, it unmaps and returns ErrRevoked.
func (b *Buffer) Close() error {
	b.c.bufMu.Lock()
	switch {
	case b.closed:
		b.c.bufMu.Unlock()
		return fmt.Errorf("nvme %s: unmap memory: %w", b.c.Name(), ErrClosed)
	case b.users > 0:
		b.c.bufMu.Unlock()
		return fmt.Errorf("nvme %s: unmap memory: %w", b.c.Name(), ErrBusy)
	}
	b.closed = true
	delete(b.c.buffers, b)
	b.c.bufMu.Unlock()
	return b.dispose()
}

// dispose unmaps and frees unused memory.
func (b *Buffer) dispose() error {
	err := b.unmap()
	if b.host == nil && errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("nvme %s: unmap %v: %w", b.c.Name(), b.span, ErrRevoked)
	}
	if b.free != nil {
		err = errors.Join(err, b.free())
	}
	return err
}
