package nvme

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
)

// gpuPage is the size of the pages in which GPU memory is pinned.
const gpuPage = 64 << 10

// hostAlign is where host memory that the driver allocates begins: libnvm finds
// maps by addresses that it rounds to this.
const hostAlign = 64 << 10

// A Buffer is memory that a controller can reach.
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

// Len is the number of bytes.
func (b *Buffer) Len() uint64 { return b.size }

// Bytes is the memory of a host buffer; nil for GPU memory, and when the buffer
// is closed.
func (b *Buffer) Bytes() []byte {
	b.c.bufMu.Lock()
	defer b.c.bufMu.Unlock()
	if b.closed {
		return nil
	}
	return b.host
}

// Span is the memory of a GPU buffer, zero for host memory.
func (b *Buffer) Span() gpu.Span { return b.span }

// AllocHost allocates n bytes of host memory, rounded up to whole pages, and
// maps them.
func (c *Controller) AllocHost(n int) (*Buffer, error) {
	if n <= 0 {
		return nil, fmt.Errorf("nvme %s: allocate %d bytes of host memory", c.Name(), n)
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

// MapHost maps host memory that begins at a page and consists of whole pages.
// It must not move or go away while it is mapped: it is the heap's or mapped.
func (c *Controller) MapHost(mem []byte) (*Buffer, error) {
	if len(mem) == 0 || len(mem)%pageSize != 0 || inPage(mem) != 0 {
		return nil, fmt.Errorf("nvme %s: map %d bytes of host memory: want whole pages of %d bytes (AllocHost gives some)", c.Name(), len(mem), pageSize)
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
	asked := n
	if n = (n + gpuPage - 1) &^ (gpuPage - 1); n == 0 {
		return nil, fmt.Errorf("nvme %s: allocate %d bytes of GPU memory", c.Name(), asked)
	}
	// An allocation may begin anywhere: take a page more and begin at a page.
	base, err := d.Alloc(gpu.KindDevice, n+gpuPage-1, 0)
	if err != nil {
		return nil, fmt.Errorf("nvme %s: %w", c.Name(), err)
	}
	free := func() error { return d.Free(base) }
	off := -uint64(base) & (gpuPage - 1)
	b, err := c.MapGPU(d, gpu.Span{Dev: d.Info().Index, Base: base, Off: off, Len: n})
	if err != nil {
		return nil, errors.Join(err, free())
	}
	b.free = free
	return b, nil
}

// MapGPU maps GPU memory that begins at a multiple of 64 KiB and consists of
// whole pages of that size. It must be plain device memory: managed memory
// moves, and host memory is MapHost's. The first time for a GPU it tries, with
// memory of its own, whether the drive reaches it, and fails with
// ErrUnreachable where it does not.
func (c *Controller) MapGPU(d gpu.Device, s gpu.Span) (*Buffer, error) {
	b, err := c.mapGPU(d, s)
	if err != nil {
		return nil, err
	}
	if err := c.reaches(d); err != nil {
		return nil, errors.Join(fmt.Errorf("nvme %s: map %v: %w", c.Name(), s, err), b.Close())
	}
	return b, nil
}

func (c *Controller) mapGPU(d gpu.Device, s gpu.Span) (*Buffer, error) {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("nvme %s: map %v: %w", c.Name(), s, fmt.Errorf(format, args...))
	}
	if s.Len == 0 || uint64(s.Addr())%gpuPage != 0 || s.Len%gpuPage != 0 {
		return nil, fail("want whole pages of %d bytes (AllocGPU gives some): %w", gpuPage, gpu.ErrInvalidValue)
	}
	p, err := d.Pointer(s.Addr())
	switch {
	case err != nil:
		return nil, fail("%w", err)
	case p.Kind == gpu.KindManaged:
		return nil, fail("managed memory moves between host and GPU and cannot be pinned: use plain device memory: %w", gpu.ErrInvalidValue)
	case !p.Kind.OnDevice():
		return nil, fail("memory of kind %v is not the GPU's: %w", p.Kind, gpu.ErrInvalidValue)
	case !p.Contains(s.Addr(), s.Len):
		return nil, fail("the allocation at %v has %d bytes: %w", p.Base, p.Size, gpu.ErrInvalidValue)
	}
	if err := c.mappable(); err != nil {
		return nil, err
	}
	// Otherwise the driver may return from a copy before it is done, and the
	// controller would read what was there before.
	if err := d.SetSyncMemops(s.Addr(), true); err != nil {
		return nil, fail("%w", err)
	}
	pages, size, unmap, err := c.t.MapGPU(s)
	if err != nil {
		return nil, fmt.Errorf("nvme: %w", err)
	}
	return c.newBuffer(&Buffer{span: s, size: s.Len}, pages, size, unmap)
}

// mappable says that memory can be mapped, until the controller is closed.
func (c *Controller) mappable() error {
	c.bufMu.Lock()
	defer c.bufMu.Unlock()
	if c.buffers == nil {
		return fmt.Errorf("nvme %s: map memory: %w", c.Name(), ErrClosed)
	}
	return nil
}

// newBuffer checks what a transport says and enters the buffer.
func (c *Controller) newBuffer(b *Buffer, pages []uint64, size uint64, unmap func() error) (*Buffer, error) {
	ok := size >= pageSize && size%pageSize == 0 && uint64(len(pages)) == (b.size+size-1)/size
	for _, p := range pages {
		ok = ok && p%pageSize == 0
	}
	if !ok {
		return nil, errors.Join(fmt.Errorf("nvme %s: the transport mapped %d bytes as %d pages of %d bytes", c.Name(), b.size, len(pages), size), unmap())
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

// hold keeps the buffer mapped for a command.
func (b *Buffer) hold() bool {
	b.c.bufMu.Lock()
	defer b.c.bufMu.Unlock()
	if b.closed {
		return false
	}
	b.users++
	return true
}

func (b *Buffer) drop() {
	b.c.bufMu.Lock()
	defer b.c.bufMu.Unlock()
	b.users--
}

// Close takes the memory from the controller, and frees it if the driver
// allocated it. It fails with ErrBusy, and changes nothing, while commands use
// the memory; and with ErrRevoked, having let go, when GPU memory was freed
// while it was mapped.
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
	return b.release()
}

// release lets the memory go. Nobody uses it any more.
func (b *Buffer) release() error {
	err := b.unmap()
	if b.host == nil && errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("nvme %s: unmap %v: %w", b.c.Name(), b.span, ErrRevoked)
	}
	if b.free != nil {
		err = errors.Join(err, b.free())
	}
	return err
}
