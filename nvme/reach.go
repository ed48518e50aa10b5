package nvme

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// checkReach tests, once for each GPU, that the controller's writes arrive in GPU
// memory. A bridge or IOMMU between the devices may drop writes without an error,
// and the drive reports success. So it reads one block into host memory and into
// GPU memory and compares.
func (c *Controller) checkReach(d gpu.Device) error {
	index := d.Info().Index
	if c.isReached(index) || len(c.namespaces) == 0 || c.namespaces[0].blocks == 0 || len(c.shared) == 0 {
		return nil // tested, or there is no block to read
	}
	if err := c.tryReach(d); err != nil {
		return fmt.Errorf("test DMA from drive to GPU: %w", err)
	}
	c.bufMu.Lock()
	defer c.bufMu.Unlock()
	c.reached[index] = true
	return nil
}

// tryReach compares in newly allocated memory.
func (c *Controller) tryReach(d gpu.Device) error {
	host, err := c.AllocHost(gpuPage)
	if err != nil {
		return err
	}
	there, err := c.allocGPU(d, gpuPage, c.mapGPU)
	if err != nil {
		return errors.Join(err, host.Close())
	}
	return errors.Join(c.compare(d, host, there), there.Close(), host.Close())
}

func (c *Controller) isReached(gpu int) bool {
	c.bufMu.Lock()
	defer c.bufMu.Unlock()
	return c.reached[gpu]
}

// readAnyBlock reads one of three blocks: some may be unreadable.
func (n *Namespace) readAnyBlock(ctx context.Context, buf *Buffer) (lba uint64, err error) {
	for _, lba = range []uint64{0, n.blocks / 2, n.blocks - 1} {
		if err = n.Read(ctx, buf, 0, lba, 1); err == nil {
			break
		}
	}
	return lba, err
}

// compare reads a block into both buffers. Before that it fills the GPU's with
// the inverted block.
func (c *Controller) compare(d gpu.Device, host, there *Buffer) error {
	ns, ctx := c.namespaces[0], context.Background()
	lba, err := ns.readAnyBlock(ctx, host)
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
		return fmt.Errorf("%w: drive reported success but the data did not arrive", ErrUnreachable)
	}
	return nil
}
