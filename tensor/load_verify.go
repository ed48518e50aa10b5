package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

// An arrival is a stretch of a tensor that has reached its memory.
type arrival struct {
	tensor int
	off    uint64 // in the tensor
	span   gpu.Span
	sum    Sum
}

// verifies reports whether a tensor is compared with its manifest. Slices of
// tensors have no checksum, and empty ones no bytes.
func (l *Load) verifies(t int) bool {
	p := &l.plan.Tensors[t]
	return l.opts.Verify && p.Whole == nil && p.Len > 0
}

// arrival returns the stretch of a tensor that a read has moved.
func (l *Load) arrival(r *Read, t int) arrival {
	p := &l.plan.Tensors[t]
	from, to := max(r.Dst, p.Off), min(r.Dst+uint64(r.Len), p.Off+p.Len)
	l.mu.Lock()
	defer l.mu.Unlock()
	return arrival{tensor: t, off: from - p.Off, span: l.buffers[p.Buffer].Slice(from, to-from)}
}

// A checker sums what arrives on one device while more is in flight, and passes on
// tensors whose sum is that of the manifest. It sums the bytes in device memory,
// not those that passed the host.
type checker struct {
	load   *Load
	device int
	queue  chan arrival
	seen   map[int][]arrival // of tensors that are not complete
}

func newChecker(l *Load, device int) *checker {
	n := len(l.plan.Copies)
	for i := range l.plan.Reads {
		n += l.plan.Reads[i].Last - l.plan.Reads[i].First + 1
	}
	// Room for all, so that no worker waits for a sum.
	return &checker{l, device, make(chan arrival, n), map[int][]arrival{}}
}

func (c *checker) run(ctx context.Context, ready chan<- int) (err error) {
	first, ok := <-c.queue
	if !ok {
		return nil // nothing to verify, so no kernel to load
	}
	sum := hostSums
	if dev := c.load.devices[c.device].dev; dev != nil {
		g, gerr := c.load.opts.Sums.take(dev)
		if gerr != nil {
			return fmt.Errorf("gpu:%d: prepare to verify: %w", c.device, gerr)
		}
		defer func() { err = errors.Join(err, c.load.opts.Sums.put(g)) }()
		sum = g.sum
	}
	for ok {
		batch := c.more([]arrival{first})
		if err := sum(ctx, batch); err != nil {
			return fmt.Errorf("verify %s: %w", c.load.where(c.device), err)
		}
		for _, a := range batch {
			if err := c.add(a, ready); err != nil {
				return err
			}
		}
		first, ok = <-c.queue
	}
	return nil
}

// more adds what else has arrived.
func (c *checker) more(batch []arrival) []arrival {
	for len(batch) < maxSums {
		select {
		case a, ok := <-c.queue:
			if !ok {
				return batch
			}
			batch = append(batch, a)
		default:
			return batch
		}
	}
	return batch
}

// add takes a summed stretch, and compares its tensor when it is complete.
func (c *checker) add(a arrival, ready chan<- int) error {
	l := c.load
	c.seen[a.tensor] = append(c.seen[a.tensor], a)
	if !l.arrived(a.tensor) {
		return nil
	}
	got := joined(c.seen[a.tensor])
	delete(c.seen, a.tensor)
	p := &l.plan.Tensors[a.tensor]
	if want := l.sums[p.File][p.Name]; got != want {
		return &ChecksumError{
			File: l.plan.Files[p.File], Tensor: p.Name,
			Detail: fmt.Sprintf("CRC-32C %s is %v, the manifest says %v", l.where(c.device), got, want),
		}
	}
	l.complete(a.tensor, ready)
	return nil
}

// where names the memory of a device.
func (l *Load) where(device int) string {
	if l.opts.host != nil {
		return "in host memory"
	}
	return fmt.Sprintf("on gpu:%d", device)
}

// joined returns the sum of a tensor whose stretches are in any order.
func joined(list []arrival) (all Sum) {
	slices.SortFunc(list, func(a, b arrival) int { return cmp.Compare(a.off, b.off) })
	for _, a := range list {
		all = all.join(a.sum, int64(a.span.Len))
	}
	return all
}
