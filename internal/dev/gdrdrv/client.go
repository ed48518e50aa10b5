package gdrdrv

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Version is that of the module.
type Version struct{ Major, Minor int }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// A Client is an open device node. It is safe for concurrent use.
type Client struct {
	node    dev.Node
	version Version
	pins    dev.Kept[*Pin]
}

// Open opens the device node and checks the module's version.
func Open(o dev.OS) (*Client, error) {
	node, err := o.Open(abi.Path)
	if err != nil {
		return nil, explain(err)
	}
	c := &Client{node: node}
	if err := c.handshake(); err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return c, nil
}

// explain adds the fix to an error of open.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: GDRCopy's kernel module is not loaded (fix: modprobe gdrdrv)", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (fix: give the user access to the device node)", err)
	}
	return err
}

func (c *Client) handshake() error {
	var p abi.GetVersionParams
	if err := dev.Ioctl(c.node, abi.GDRDRV_IOC_GET_VERSION, &p); err != nil {
		return fmt.Errorf("gdrdrv version: %w", err)
	}
	c.version = Version{int(p.GdrdrvVersion >> 16), int(p.GdrdrvVersion & 0xffff)}
	if c.version.Major != abi.GDRDRV_VERSION>>16 {
		return fmt.Errorf("gdrdrv %v: only version %d.x is supported: %w", c.version, abi.GDRDRV_VERSION>>16, errors.ErrUnsupported)
	}
	if p.MinimumGdrAPIVersion > abi.GDRDRV_VERSION {
		return fmt.Errorf("gdrdrv %v requires a client of version %d.%d or later: %w", c.version,
			p.MinimumGdrAPIVersion>>16, p.MinimumGdrAPIVersion&0xffff, errors.ErrUnsupported)
	}
	return nil
}

// Version returns the module's version.
func (c *Client) Version() Version { return c.version }

// Attr returns an attribute, abi.GDRDRV_ATTR_*. Modules before 2.5 have none.
func (c *Client) Attr(attr uint32) (uint32, error) {
	p := abi.GetAttrParams{Attr: attr}
	if err := dev.Ioctl(c.node, abi.GDRDRV_IOC_GET_ATTR, &p); err != nil {
		return 0, fmt.Errorf("gdrdrv attribute %d: %w", attr, err)
	}
	return p.Val, nil
}

// Persistent reports whether pins outlive the free of their memory. Modules before 2.5 do
// not tell, and do not have it.
func (c *Client) Persistent() bool {
	on, err := c.Attr(abi.GDRDRV_ATTR_USE_PERSISTENT)
	return err == nil && on != 0
}

// Pin pins size bytes at addr, in whole GPU pages. Only pins that begin on a GPU page
// can be mapped; see PinAround.
func (c *Client) Pin(addr, size uint64) (*Pin, error) {
	p := abi.PinBufferParams{Addr: addr, Size: size}
	return c.pin(addr, size, func() (uint64, error) {
		err := dev.Ioctl(c.node, abi.GDRDRV_IOC_PIN_BUFFER, &p)
		return p.Handle, err
	})
}

// PinFlags is Pin with flags, abi.GDRDRV_PIN_FLAG_*. Modules before 2.5 do not
// support it.
func (c *Client) PinFlags(addr, size uint64, flags uint32) (*Pin, error) {
	p := abi.PinBufferParamsV2{Addr: addr, Size: size, Flags: flags}
	return c.pin(addr, size, func() (uint64, error) {
		err := dev.Ioctl(c.node, abi.GDRDRV_IOC_PIN_BUFFER_V2, &p)
		return p.Handle, err
	})
}

// PinAround pins the GPU pages around size bytes at addr, so that they can be mapped.
// off is their offset in the mapping.
func (c *Client) PinAround(addr, size uint64) (p *Pin, off uint64, err error) {
	off = addr % abi.GPU_PAGE_SIZE
	p, err = c.Pin(addr-off, size+off)
	return p, off, err
}

func (c *Client) pin(addr, size uint64, call func() (handle uint64, err error)) (*Pin, error) {
	p, err := c.pins.Take(func() (*Pin, error) {
		h, err := call()
		if errors.Is(err, syscall.EINVAL) {
			err = fmt.Errorf("%w: must be GPU memory of this process, within one allocation", err)
		}
		return &Pin{c: c, handle: h, addr: addr, size: size}, err
	})
	if err != nil {
		return nil, fmt.Errorf("gdrdrv pin %#x+%#x: %w", addr, size, err)
	}
	return p, nil
}

// Close unmaps and unpins all memory and closes the device node. A second call
// returns fs.ErrClosed.
func (c *Client) Close() error {
	err := c.pins.Close((*Pin).Unpin)
	if errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("gdrdrv close: %w", err)
	}
	return errors.Join(err, c.node.Close())
}
