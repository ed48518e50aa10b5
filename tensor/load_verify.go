package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

// An arrival is a stretch of a tensor that has reached the device.
type arrival struct {
	tensor int
	off    uint64 // in the tensor
	span   gpu.Span
	sum    Sum
}

// checks reports whether a tensor is compared with its manifest. Parts of tensors
// have no sum of their own, and empty ones no bytes.
func (l *Load) checks(t int) bool {
	p := &l.plan.Tensors[t]
	return l.opts.Verify && p.Whole == nil && p.Len > 0
}

// arrival is what a read has brought of a tensor.
func (l *Load) arrival(r *Read, t int) arrival {
	p := &l.plan.Tensors[t]
	from, to := max(r.Dst, p.Off), min(r.Dst+uint64(r.Len), p.Off+p.Len)
	l.mu.Lock()
	defer l.mu.Unlock()
	return arrival{tensor: t, off: from - p.Off, span: l.buffers[p.Buffer].Slice(from, to-from)}
}

// A checker sums what arrives on one device while more is on its way, and hands
// tensors over whose sum is that of the manifest. What is summed is what lies on
// the device, not what passed the host.
type checker struct {
	load   *Load
	device int
	queue  chan arrival
	seen   map[int][]arrival // of tensors that are not complete
}

func newChecker(l *Load, device int) *checker {
	n := 0
	for i := range l.plan.Reads {
		n += l.plan.Reads[i].Last - l.plan.Reads[i].First + 1
	}
	// Room for all, so that no carrier waits for a sum.
	return &checker{l, device, make(chan arrival, n), map[int][]arrival{}}
}

func (c *checker) run(ctx context.Context, ready chan<- int) (err error) {
	first, ok := <-c.queue
	if !ok {
		return nil // nothing to check, so no kernel to load
	}
	s, err := c.load.opts.Sums.take(c.load.devices[c.device].dev)
	if err != nil {
		return fmt.Errorf("gpu:%d: preparing to verify: %w", c.device, err)
	}
	defer func() { err = errors.Join(err, c.load.opts.Sums.give(s)) }()
	for ok {
		batch := c.more([]arrival{first})
		if err := s.sum(ctx, batch); err != nil {
			return fmt.Errorf("verifying on gpu:%d: %w", c.device, err)
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

// more takes what else has arrived.
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

// add takes a stretch that was summed, and compares its tensor when all of it
// is here.
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
		return &ChecksumError{File: l.plan.Files[p.File], Tensor: p.Name, Detail: fmt.Sprintf("CRC-32C on gpu:%d is %v, the manifest says %v", c.device, got, want)}
	}
	ready <- a.tensor
	return nil
}

// joined is the sum of a tensor whose stretches came in any order.
func joined(list []arrival) (all Sum) {
	slices.SortFunc(list, func(a, b arrival) int { return cmp.Compare(a.off, b.off) })
	for _, a := range list {
		all = all.join(a.sum, int64(a.span.Len))
	}
	return all
}
