package gpumem

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
)

// A Client is an open device node of the module. It is safe for concurrent use.
type Client struct {
	node  dev.Node
	locks dev.Kept[*Lock]
}

// Open opens the device node of a machine.
func Open(m *machine.Machine) (*Client, error) {
	node, err := dev.Of(m).Open(abi.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: module gpumem of the gpudma project is not loaded (fix: insmod gpumem.ko)", err)
	case err != nil:
		return nil, err
	}
	return &Client{node: node}, nil
}

// Lock pins the GPU pages around n bytes at a.
func (c *Client) Lock(a gpu.Addr, n uint64) (*Lock, error) {
	addr := uint64(a)
	first := addr &^ abi.GPU_BOUND_OFFSET
	end := (addr + n + abi.GPU_BOUND_OFFSET) &^ abi.GPU_BOUND_OFFSET
	if n == 0 || end <= addr {
		return nil, fmt.Errorf("gpumem: lock %d bytes at %v: empty range, or past the end of the address space: %w", n, a, syscall.EINVAL)
	}
	l, err := c.locks.Take(func() (*Lock, error) { return c.lock(addr, first, end) })
	if err != nil {
		return nil, fmt.Errorf("gpumem: lock %d bytes at %v: %w", n, a, err)
	}
	return l, nil
}

// lock sends a rounded end: the module rounds the start down and leaves the end as it
// is, which newer drivers reject.
func (c *Client) lock(addr, first, end uint64) (*Lock, error) {
	p := abi.Lock{Addr: addr, Size: end - addr}
	if err := dev.Ioctl(c.node, abi.IOCTL_GPUMEM_LOCK, &p); err != nil {
		return nil, fmt.Errorf("%w: must be GPU memory of this process, within one allocation", err)
	}
	l := &Lock{c: c, handle: p.Handle, addr: gpu.Addr(first), count: (end - first) / abi.GPU_BOUND_SIZE}
	if p.PageCount != l.count {
		err := fmt.Errorf("module reports %d pages instead of %d: its page size is not %d bytes", p.PageCount, l.count, abi.GPU_BOUND_SIZE)
		return nil, errors.Join(err, l.unlock())
	}
	return l, nil
}

// Close unmaps and unlocks all memory and closes the device node. A second call
// returns fs.ErrClosed.
func (c *Client) Close() error {
	err := c.locks.Close((*Lock).Unlock)
	if errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("gpumem: close: %w", err)
	}
	return errors.Join(err, c.node.Close())
}

// unlock sends the request.
func (l *Lock) unlock() error {
	p := abi.Unlock{Handle: l.handle}
	return dev.Ioctl(l.c.node, abi.IOCTL_GPUMEM_UNLOCK, &p)
}

// state requests the pages. The module writes one zero behind the last page.
func (l *Lock) state() (size uint64, pages []uint64, err error) {
	buf := make([]uint64, abi.StateSize(l.count)/8)
	buf[0], buf[1] = l.handle, l.count
	if err := dev.Ioctl(l.c.node, abi.IOCTL_GPUMEM_STATE, &buf[0]); err != nil {
		return 0, nil, err
	}
	return buf[2], buf[abi.StatePages/8:][:l.count:l.count], nil
}
