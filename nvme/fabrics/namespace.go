package fabrics

import (
	"context"
	"encoding/binary"
	"fmt"

	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/rdma"
)

// enableBits is CC: enabled, entries of 64 and 16 bytes.
const enableBits = nvme.CC_EN | 6<<nvme.CC_IOSQES_SHIFT | 4<<nvme.CC_IOCQES_SHIFT

// A Namespace is a range of blocks of a remote drive.
type Namespace struct {
	c      *Controller
	id     uint32
	blocks uint64
	shift  uint
}

// ID is the namespace's number.
func (n *Namespace) ID() uint32 { return n.id }

// Blocks is the number of blocks when the controller was connected.
func (n *Namespace) Blocks() uint64 { return n.blocks }

// BlockSize is the size of a block in bytes.
func (n *Namespace) BlockSize() int { return 1 << n.shift }

func (c *Controller) addNamespace(ctx context.Context, id uint32) error {
	b, err := c.identifyData(ctx, nvme.CNS_NAMESPACE, id)
	if err != nil {
		return err
	}
	shift, blocks := describedFormat(b)
	if shift < 9 || shift > 16 || blocks > 1<<63>>shift {
		return fmt.Errorf("namespace %d has %d blocks of 2^%d bytes, which is not supported", id, blocks, shift)
	}
	c.namespaces = append(c.namespaces, &Namespace{c, id, blocks, shift})
	return nil
}

// Read fills registered memory from blocks that begin at a byte offset. The target
// writes it. Offset and length must be whole blocks.
func (n *Namespace) Read(ctx context.Context, mr rdma.MR, at, length uint64, off int64) error {
	return n.move(ctx, "read", nvme.NVM_READ, mr, at, length, off)
}

// Write stores registered memory, which the target reads.
func (n *Namespace) Write(ctx context.Context, mr rdma.MR, at, length uint64, off int64) error {
	return n.move(ctx, "write", nvme.NVM_WRITE, mr, at, length, off)
}

// Flush makes what was written durable.
func (n *Namespace) Flush(ctx context.Context) error {
	_, err := n.c.io().do(ctx, "flush", nvme.Command{Opcode: nvme.NVM_FLUSH, Flags: abi.FLAGS_SGL, NSID: n.id}, nil)
	return err
}

// move splits a transfer into commands of at most MDTS.
func (n *Namespace) move(ctx context.Context, op string, code uint8, mr rdma.MR, at, length uint64, off int64) error {
	bs := uint64(n.BlockSize())
	switch {
	case off < 0 || uint64(off)%bs != 0 || length%bs != 0:
		return fmt.Errorf("%s %d bytes at %d: must be whole blocks of %d bytes", op, length, off, bs)
	case at > mr.Len() || length > mr.Len()-at:
		return fmt.Errorf("%s %d bytes at %d of a region of %d: outside of the region", op, length, at, mr.Len())
	}
	for done := uint64(0); done < length; {
		part := min(length-done, uint64(n.c.maxTransfer))
		cmd := nvme.Blocks(code, n.id, (uint64(off)+done)/bs, uint32(part/bs))
		if err := abi.Keyed(mr.Addr()+at+done, uint32(part), mr.RKey()).Put(&cmd); err != nil {
			return err
		}
		if _, err := n.c.io().do(ctx, op, cmd, nil); err != nil {
			return err
		}
		done += part
	}
	return nil
}

// describedFormat reads size and block size out of Identify Namespace.
func describedFormat(b []byte) (shift uint, blocks uint64) {
	const lbaf = 128
	return uint(b[lbaf+4*int(b[26]&nvme.FLBAS_INDEX_MASK)+2]), binary.LittleEndian.Uint64(b)
}
