package nvme

import (
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// A Namespace is a range of blocks of a drive.
type Namespace struct {
	c      *Controller
	id     uint32
	blocks uint64
	shift  uint // of the block size
}

// ID is the namespace's number.
func (n *Namespace) ID() uint32 { return n.id }

// Blocks is the number of blocks when the controller was opened.
func (n *Namespace) Blocks() uint64 { return n.blocks }

// BlockSize is the size of a block in bytes.
func (n *Namespace) BlockSize() int { return 1 << n.shift }

// maxNamespaces limits a list from a faulty controller.
const maxNamespaces = 1024

// findNamespaces adds all active namespaces.
func (c *Controller) findNamespaces() error {
	last, found := uint32(0), 0
	for {
		list, err := identify[abi.NamespaceList](c, "list namespaces", abi.CNS_ACTIVE_NAMESPACE, last)
		if err != nil {
			return err
		}
		for _, id := range list {
			if id == 0 {
				return nil
			}
			switch {
			case id <= last:
				return fmt.Errorf("controller lists namespace %d after %d", id, last)
			case found == maxNamespaces:
				return fmt.Errorf("controller lists more than %d namespaces", maxNamespaces)
			}
			last = id
			found++
			if err := c.addNamespace(id); err != nil {
				return err
			}
		}
	}
}

// addNamespace adds a namespace, unless the driver does not support its format.
func (c *Controller) addNamespace(nsid uint32) error {
	id, err := identify[abi.IdentifyNamespace](c, "identify namespace", abi.CNS_NAMESPACE, nsid)
	if err != nil {
		return err
	}
	f := id.LBAF[id.FLBAS&abi.FLBAS_INDEX_MASK]
	if f.LBADS < 9 || f.LBADS > 16 || 1<<f.LBADS > c.maxTransfer || f.MS != 0 {
		return nil // metadata, or a block size that no command can transfer
	}
	if id.NSZE > 1<<63>>f.LBADS {
		return fmt.Errorf("namespace %d: invalid size: %d blocks of %d bytes", nsid, id.NSZE, 1<<f.LBADS)
	}
	c.namespaces = append(c.namespaces, &Namespace{c: c, id: nsid, blocks: id.NSZE, shift: uint(f.LBADS)})
	return nil
}
