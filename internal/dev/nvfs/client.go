package nvfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
)

var (
	// ErrNotDirect: the storage driver of a file does not support nvidia-fs. No bytes
	// were moved to or from the GPU.
	ErrNotDirect = errors.New("the storage driver moved no bytes of GPU memory")
	// ErrRevoked: the GPU memory of a buffer was freed.
	ErrRevoked = errors.New("the GPU memory was freed")
	// ErrAlign: a transfer is not in whole blocks of 4096 bytes.
	ErrAlign = errors.New("not a multiple of 4096")
)

// A Client is an open device node. It is safe for concurrent use.
type Client struct {
	os      dev.OS
	node    dev.Node
	buffers dev.Kept[*Buffer]
}

// Open opens the module's first device node.
func Open(o dev.OS) (*Client, error) {
	node, err := o.Open(abi.Path(0))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: kernel module nvidia-fs is not loaded (fix: modprobe nvidia-fs)", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w (fix: give the user access to the device node)", err)
	case err != nil:
		return nil, err
	}
	return &Client{os: o, node: node}, nil
}

// pseudo is always listed and is not a driver.
const pseudo = "wekafsio"

// Drivers returns the storage drivers that have registered with the module.
func (c *Client) Drivers() ([]string, error) {
	text, err := fs.ReadFile(c.os.FS(), path.Join(abi.ProcDir, "modules"))
	if err != nil {
		return nil, fmt.Errorf("nvidia-fs storage drivers: %w", err)
	}
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if name, _, ok := strings.Cut(lines.Text(), ":"); ok && name != pseudo {
			names = append(names, name)
		}
	}
	return names, nil
}

// hooked checks that a driver has registered.
func (c *Client) hooked() error {
	names, err := c.Drivers()
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%w: none has registered with nvidia-fs (see /%s/modules)", ErrNotDirect, abi.ProcDir)
	}
	return err
}

// Close closes all buffers and the device node. A second call returns fs.ErrClosed.
func (c *Client) Close() error {
	err := c.buffers.Close((*Buffer).Close)
	if errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("nvidia-fs close: %w", err)
	}
	return errors.Join(err, c.node.Close())
}
