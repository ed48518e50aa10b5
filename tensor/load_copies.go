package tensor

import (
	"context"
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// A copier brings tensors that other GPUs have read to one device.
type copier struct {
	load   *Load
	device int
	queue  chan Copy // has room for all, so that no worker waits
}

// prepareCopies counts what tensors wait for, and makes the copiers.
func (l *Load) prepareCopies() error {
	if len(l.plan.Copies) > 0 && l.opts.Window > 0 {
		return errors.New("a window needs a plan without copies between GPUs (fix: PlanOptions.Apart)")
	}
	l.copies, l.uncopied = map[int][]Copy{}, make([]int, len(l.plan.Tensors))
	count := map[int]int{}
	for _, c := range l.plan.Copies {
		l.copies[c.From] = append(l.copies[c.From], c)
		l.left[c.To]++
		l.uncopied[c.From]++
		count[l.deviceOf(c.To)]++
	}
	l.copiers = map[int]*copier{}
	for device, n := range count {
		l.copiers[device] = &copier{l, device, make(chan Copy, n)}
	}
	return nil
}

// deviceOf returns the GPU of a tensor.
func (l *Load) deviceOf(tensor int) int { return l.plan.Buffers[l.plan.Tensors[tensor].Buffer].Device }

// complete passes on a tensor whose bytes have been read and verified. One that is
// copied waits for its copies: its user may change it.
func (l *Load) complete(tensor int, ready chan<- int) {
	copies := l.copies[tensor]
	if len(copies) == 0 {
		ready <- tensor
		return
	}
	for _, c := range copies {
		l.copiers[l.deviceOf(c.To)].queue <- c
	}
}

// run makes the copies to the device, each when its tensor is complete.
func (c *copier) run(ctx context.Context, ready chan<- int) (err error) {
	stream, err := c.load.devices[c.device].dev.NewStream()
	if err != nil {
		return fmt.Errorf("gpu:%d: prepare to copy from other GPUs: %w", c.device, err)
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	for range cap(c.queue) {
		select {
		case next := <-c.queue:
			if err := c.copy(stream, next); err != nil {
				return err
			}
			c.load.copied(next, ready)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *copier) copy(stream gpu.Stream, what Copy) error {
	l := c.load
	from, to := l.Tensor(what.From), l.Tensor(what.To)
	err := copyPeer(stream, to.Span, l.devices[from.Span.Dev].dev, from.Span)
	if err == nil {
		err = stream.Synchronize()
	}
	if err != nil {
		return fmt.Errorf("copying %s from gpu:%d to gpu:%d: %w", to.Name, from.Span.Dev, c.device, err)
	}
	return nil
}

// copyPeer enqueues a copy from another GPU.
func copyPeer(stream gpu.Stream, to gpu.Span, dev gpu.Device, from gpu.Span) error {
	if s, ok := stream.(gpu.PeerStream); ok {
		return s.CopyPeer(to.Addr(), dev, from.Addr(), to.Len)
	}
	return stream.Copy(to.Addr(), from.Addr(), to.Len)
}

// copied passes on a copy, or lets it be verified, and its source after the last copy.
func (l *Load) copied(c Copy, ready chan<- int) {
	p := &l.plan.Tensors[c.To]
	l.mu.Lock()
	l.report.Copied += int64(p.Len)
	l.uncopied[c.From]--
	last := l.uncopied[c.From] == 0
	l.mu.Unlock()
	if last {
		ready <- c.From
	}
	if l.verifies(c.To) {
		l.devices[l.deviceOf(c.To)].checker.queue <- arrival{tensor: c.To, span: l.Tensor(c.To).Span}
	} else if l.arrived(c.To) {
		ready <- c.To
	}
}
