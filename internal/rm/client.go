package rm

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Client is a client of the resource manager. It is safe for concurrent use. A
// forked child cannot use it: the driver binds it to the process that opened it.
type Client struct {
	os      dev.OS
	ctl     dev.Node
	version string
	handle  nvrm.Handle

	mu      sync.Mutex
	devices map[uint32]*device       // by minor
	objects map[nvrm.Handle]struct{} // not yet freed
	last    uint32                   // last handle allocated
	closed  bool
}

// Our handles are in one range, apart from those that the driver chooses.
const (
	handleBase nvrm.Handle = 0xbe000000
	handleMask uint32      = 0x00ffffff
)

// Open makes this process a client of the resource manager. It fails with an
// [*Unavailable] if the driver's interface is unknown.
func Open(os dev.OS) (*Client, error) {
	if err := confined(os); err != nil {
		return nil, err
	}
	ctl, err := os.Open(nvrm.CtlPath)
	if err != nil {
		return nil, nodeUnavailable(err)
	}
	c := &Client{os: os, ctl: ctl, devices: map[uint32]*device{}, objects: map[nvrm.Handle]struct{}{}}
	if err := c.init(); err != nil {
		return nil, errors.Join(err, ctl.Close())
	}
	return c, nil
}

func (c *Client) init() error {
	v, err := queryVersion(c.ctl)
	if err != nil {
		return unavailable("driver version", err)
	}
	if _, err := nvrm.FamilyOf(v); err != nil {
		return unavailable("driver version", err)
	}
	c.version = v
	root := nvrm.NVOS64Parameters{HClass: nvrm.NV01_ROOT_CLIENT}
	if err := alloc[struct{}](c.ctl, &root, nil); err != nil {
		return unavailable("resource manager client", err)
	}
	c.handle = root.HObjectNew
	return nil
}

func queryVersion(ctl dev.Node) (string, error) {
	v := nvrm.RMAPIVersion{Cmd: nvrm.NV_RM_API_VERSION_CMD_QUERY}
	if err := dev.Ioctl(ctl, nvrm.IoctlCheckVersion, &v); err != nil {
		return "", err
	}
	if v.Reply != nvrm.NV_RM_API_VERSION_REPLY_RECOGNIZED {
		return "", fmt.Errorf("driver does not report its version (reply %#x)", v.Reply)
	}
	s, _, _ := bytes.Cut(v.VersionString[:], []byte{0})
	return string(s), nil
}

// Version is the kernel driver's, such as "580.159.04".
func (c *Client) Version() string { return c.version }

// Close closes the client. Mapped objects stay valid; the client itself is freed
// with the last of them.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	idle := len(c.objects) == 0
	c.mu.Unlock()
	if idle {
		return c.shutdown()
	}
	return nil
}

// shutdown runs once: by Close, or by the last object after it.
func (c *Client) shutdown() error {
	var errs []error
	for _, d := range c.devices {
		errs = append(errs, c.free(c.handle, d.handle), d.node.Close())
	}
	errs = append(errs, c.free(0, c.handle), c.ctl.Close())
	return errors.Join(errs...)
}

func (c *Client) free(parent, h nvrm.Handle) error {
	p := nvrm.NVOS00Parameters{HRoot: c.handle, HObjectParent: parent, HObjectOld: h}
	if err := call(c.ctl, nvrm.IoctlFree, &p, &p.Status); err != nil {
		return fmt.Errorf("free object %#x: %w", h, err)
	}
	return nil
}

// newHandle chooses an unused handle.
func (c *Client) newHandle() nvrm.Handle {
	for {
		c.last = (c.last + 1) & handleMask
		h := handleBase + nvrm.Handle(c.last)
		_, used := c.objects[h]
		for _, d := range c.devices {
			used = used || d.handle == h
		}
		if !used {
			return h
		}
	}
}

// begin registers an object before it exists, so that Close keeps the client for
// it.
func (c *Client) begin() (nvrm.Handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, ErrClosed
	}
	h := c.newHandle()
	c.objects[h] = struct{}{}
	return h, nil
}

// end unregisters an object.
func (c *Client) end(h nvrm.Handle) error {
	c.mu.Lock()
	delete(c.objects, h)
	last := c.closed && len(c.objects) == 0
	c.mu.Unlock()
	if last {
		return c.shutdown()
	}
	return nil
}
