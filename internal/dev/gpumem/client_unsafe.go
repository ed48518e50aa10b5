package gpumem

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Client is an open node. It is safe for concurrent use.
type Client struct {
	node  dev.Node
	locks dev.Kept[*Lock]
}

// Open opens the node.
func Open(o dev.OS) (*Client, error) {
	node, err := o.Open(abi.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: the module gpumem of the gpudma project is not loaded (try: insmod gpumem.ko)", err)
	case err != nil:
		return nil, err
	}
	return &Client{node: node}, nil
}

func ioctl(n dev.Node, req uintptr, arg unsafe.Pointer) error {
	for {
		err := n.Ioctl(req, arg)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Lock pins the GPU pages around size bytes at addr.
func (c *Client) Lock(addr, size uint64) (*Lock, error) {
	first := addr &^ abi.GPU_BOUND_OFFSET
	end := (addr + size + abi.GPU_BOUND_OFFSET) &^ abi.GPU_BOUND_OFFSET
	if size == 0 || end <= addr {
		return nil, fmt.Errorf("gpumem lock %#x+%#x: no range of memory: %w", addr, size, syscall.EINVAL)
	}
	l, err := c.locks.Take(func() (*Lock, error) { return c.lock(addr, first, end) })
	if err != nil {
		return nil, fmt.Errorf("gpumem lock %#x+%#x: %w", addr, size, err)
	}
	return l, nil
}

// lock has the end rounded: the module rounds the start down and leaves the end
// as it is, which newer drivers refuse.
func (c *Client) lock(addr, first, end uint64) (*Lock, error) {
	p := abi.Lock{Addr: addr, Size: end - addr}
	if err := ioctl(c.node, abi.IOCTL_GPUMEM_LOCK, unsafe.Pointer(&p)); err != nil {
		return nil, fmt.Errorf("%w: it must be GPU memory of this process that lies in one allocation", err)
	}
	l := &Lock{c: c, handle: p.Handle, addr: first, count: (end - first) / abi.GPU_BOUND_SIZE}
	if p.PageCount != l.count {
		err := fmt.Errorf("the module speaks of %d pages, there are %d: its pages are not of %d bytes", p.PageCount, l.count, abi.GPU_BOUND_SIZE)
		return nil, errors.Join(err, l.unlock())
	}
	return l, nil
}

// Close unmaps and unlocks what is left, and closes the node. A second call is
// fs.ErrClosed.
func (c *Client) Close() error {
	err := c.locks.Close((*Lock).Unlock)
	if errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("gpumem close: %w", err)
	}
	return errors.Join(err, c.node.Close())
}

// unlock tells the module.
func (l *Lock) unlock() error {
	p := abi.Unlock{Handle: l.handle}
	return ioctl(l.c.node, abi.IOCTL_GPUMEM_UNLOCK, unsafe.Pointer(&p))
}

// state asks the module for the pages. buf has room for the zero that the
// module adds.
func (l *Lock) state() (size uint64, pages []uint64, err error) {
	buf := make([]uint64, abi.StateSize(l.count)/8)
	buf[0], buf[1] = l.handle, l.count
	if err := ioctl(l.c.node, abi.IOCTL_GPUMEM_STATE, unsafe.Pointer(&buf[0])); err != nil {
		return 0, nil, err
	}
	return buf[2], buf[abi.StatePages/8:][:l.count:l.count], nil
}
