package gdrdrv

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Version is the module's.
type Version struct {
	Major, Minor int
	MinimumAPI   uint32 // of the interface, major<<16 | minor
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// A Client is an open node. It is safe for concurrent use.
type Client struct {
	node    dev.Node
	version Version
	pins    dev.Kept[*Pin]
}

// Open opens the node and makes sure that the module speaks our language.
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

// explain adds what to do about a node that does not open.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: GDRCopy's kernel module is not loaded (try: modprobe gdrdrv)", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: give the user access to the node", err)
	}
	return err
}

func (c *Client) handshake() error {
	var p abi.GetVersionParams
	if err := dev.Ioctl(c.node, abi.GDRDRV_IOC_GET_VERSION, &p); err != nil {
		return fmt.Errorf("gdrdrv version: %w", err)
	}
	c.version = Version{int(p.GdrdrvVersion >> 16), int(p.GdrdrvVersion & 0xffff), p.MinimumGdrAPIVersion}
	if c.version.Major != abi.GDRDRV_VERSION>>16 {
		return fmt.Errorf("gdrdrv %v: this client speaks version %d.x: %w", c.version, abi.GDRDRV_VERSION>>16, errors.ErrUnsupported)
	}
	if p.MinimumGdrAPIVersion > abi.GDRDRV_VERSION {
		return fmt.Errorf("gdrdrv %v wants a client of %d.%d or later: %w", c.version,
			p.MinimumGdrAPIVersion>>16, p.MinimumGdrAPIVersion&0xffff, errors.ErrUnsupported)
	}
	return nil
}

// Version is the module's.
func (c *Client) Version() Version { return c.version }

// Attr asks for an attribute: abi.GDRDRV_ATTR_*. Modules before 2.5 know none.
func (c *Client) Attr(attr uint32) (uint32, error) {
	p := abi.GetAttrParams{Attr: attr}
	if err := dev.Ioctl(c.node, abi.GDRDRV_IOC_GET_ATTR, &p); err != nil {
		return 0, fmt.Errorf("gdrdrv attribute %d: %w", attr, err)
	}
	return p.Val, nil
}

// Pin pins size bytes at addr, in whole GPU pages. Only what begins on a GPU
// page can be mapped; see PinAround.
func (c *Client) Pin(addr, size uint64) (*Pin, error) {
	p := abi.PinBufferParams{Addr: addr, Size: size}
	return c.pin(addr, size, func() (uint64, error) {
		err := dev.Ioctl(c.node, abi.GDRDRV_IOC_PIN_BUFFER, &p)
		return p.Handle, err
	})
}

// PinFlags is Pin with flags: abi.GDRDRV_PIN_FLAG_*. Modules before 2.5 do not
// know it.
func (c *Client) PinFlags(addr, size uint64, flags uint32) (*Pin, error) {
	p := abi.PinBufferParamsV2{Addr: addr, Size: size, Flags: flags}
	return c.pin(addr, size, func() (uint64, error) {
		err := dev.Ioctl(c.node, abi.GDRDRV_IOC_PIN_BUFFER_V2, &p)
		return p.Handle, err
	})
}

// PinAround pins the GPU pages around size bytes at addr, so that they can be
// mapped. The bytes begin at off in the mapping.
func (c *Client) PinAround(addr, size uint64) (p *Pin, off uint64, err error) {
	off = addr % abi.GPU_PAGE_SIZE
	p, err = c.Pin(addr-off, size+off)
	return p, off, err
}

func (c *Client) pin(addr, size uint64, call func() (handle uint64, err error)) (*Pin, error) {
	p, err := c.pins.Take(func() (*Pin, error) {
		h, err := call()
		if errors.Is(err, syscall.EINVAL) {
			err = fmt.Errorf("%w: it must be GPU memory of this process that lies in one allocation", err)
		}
		return &Pin{c: c, handle: h, addr: addr, size: size}, err
	})
	if err != nil {
		return nil, fmt.Errorf("gdrdrv pin %#x+%#x: %w", addr, size, err)
	}
	return p, nil
}

// Close unmaps and unpins what is left, and closes the node. A second call is
// fs.ErrClosed.
func (c *Client) Close() error {
	err := c.pins.Close((*Pin).Unpin)
	if errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("gdrdrv close: %w", err)
	}
	return errors.Join(err, c.node.Close())
}
