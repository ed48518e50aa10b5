package nvme

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// reaches makes sure, once for each GPU, that what the controller writes to the
// GPU's memory arrives there. A bridge or an IOMMU that does not pass requests
// between devices drops writes, and the drive may hear nothing of it and report
// success. So a block is read twice, into host memory and into the GPU's, and
// compared.
func (c *Controller) reaches(d gpu.Device) error {
	index := d.Info().Index
	if c.knows(index) || len(c.namespaces) == 0 || c.namespaces[0].blocks == 0 || len(c.shared) == 0 {
		return nil // or there is nothing to try it with
	}
	if err := c.try(d, index); err != nil {
		return fmt.Errorf("to see whether the GPU is within reach: %w", err)
	}
	c.bufMu.Lock()
	defer c.bufMu.Unlock()
	c.reached[index] = true
	return nil
}

// try has the controller write to memory that is taken for the purpose.
func (c *Controller) try(d gpu.Device, index int) error {
	host, err := c.AllocHost(gpuPage)
	if err != nil {
		return err
	}
	base, err := d.Alloc(gpu.KindDevice, 2*gpuPage-1, 0)
	if err != nil {
		return errors.Join(err, host.Close())
	}
	off := -uint64(base) & (gpuPage - 1)
	there, err := c.mapGPU(d, gpu.Span{Dev: index, Base: base, Off: off, Len: gpuPage})
	if err != nil {
		return errors.Join(err, d.Free(base), host.Close())
	}
	return errors.Join(c.compare(d, host, there), there.Close(), d.Free(base), host.Close())
}

func (c *Controller) knows(gpu int) bool {
	c.bufMu.Lock()
	defer c.bufMu.Unlock()
	return c.reached[gpu]
}

// readable reads a block into a buffer, one of a few: a drive may have bad ones.
func (n *Namespace) readable(ctx context.Context, buf *Buffer) (lba uint64, err error) {
	for _, lba = range []uint64{0, n.blocks / 2, n.blocks - 1} {
		if err = n.Read(ctx, buf, 0, lba, 1); err == nil {
			break
		}
	}
	return lba, err
}

// compare reads a block into both buffers. Before that the GPU's holds what the
// block does not.
func (c *Controller) compare(d gpu.Device, host, there *Buffer) error {
	ns, ctx := c.namespaces[0], context.Background()
	lba, err := ns.readable(ctx, host)
	if err != nil {
		return err
	}
	want := host.host[:ns.BlockSize()]
	got := make([]byte, len(want))
	for i, b := range want {
		got[i] = ^b
	}
	at := there.Span().Addr()
	if err := d.CopyIn(at, got); err != nil {
		return err
	}
	var status Status
	err = ns.Read(ctx, there, 0, lba, 1)
	if errors.As(err, &status) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if err != nil {
		return err
	}
	if err := d.FlushWrites(gpu.ScopeOwner); err != nil && !errors.Is(err, gpu.ErrNotSupported) {
		return err
	}
	if err := d.CopyOut(got, at); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: the drive reports success, and the bytes are not there", ErrUnreachable)
	}
	return nil
}
