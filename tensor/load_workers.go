package tensor

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/gpu"
)

// run starts the goroutines of one device: one that gives its batches out in
// order, some that carry them, and one that checks what has arrived.
func (l *Load) run(ctx context.Context, g *errgroup.Group, device int, ready chan<- int) {
	queue, large := make(chan *readBatch), make(chan struct{}, l.opts.Depth)
	g.Go(func() error {
		defer close(queue)
		return l.feed(ctx, device, queue, large, ready)
	})
	var carriers sync.WaitGroup
	for range max(l.opts.Depth, l.opts.small) {
		carriers.Add(1)
		g.Go(func() error {
			defer carriers.Done()
			for p := range queue {
				if err := l.carry(ctx, p, large, ready); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if c := l.devices[device].checker; c != nil {
		g.Go(func() error { return c.run(ctx, ready) })
		g.Go(func() error {
			carriers.Wait()
			close(c.queue)
			return nil
		})
	}
}

// feed gives the batches of a device out in the order of the plan. Where the load
// streams, it waits for room. Only so many large batches are under way: each uses
// the whole machine.
func (l *Load) feed(ctx context.Context, device int, queue chan<- *readBatch, large chan<- struct{}, ready chan<- int) error {
	for i := range l.plan.Tensors {
		t := &l.plan.Tensors[i]
		if t.Len > 0 || l.plan.Buffers[t.Buffer].Device != device {
			continue
		}
		// Nothing to wait for but a place.
		if err := l.room(ctx, device, t.Buffer); err != nil {
			return err
		}
		ready <- i
	}
	return l.batches(ctx, device, func(p *readBatch) error {
		if !p.small() {
			select {
			case large <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case queue <- p:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// room waits until a buffer of a streaming load has a place.
func (l *Load) room(ctx context.Context, device, buffer int) error {
	w := l.devices[device].window
	if w == nil || l.buffers[buffer].Base != 0 {
		return nil
	}
	span, err := w.take(ctx, l.plan.Buffers[buffer].Size)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.buffers[buffer] = span
	l.mu.Unlock()
	return nil
}

// place is where a read goes.
func (l *Load) place(r *Read) gpu.Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffers[r.Buffer].Slice(r.Dst, uint64(r.Size()))
}

// carry moves a batch and tells who became ready by it, or lets that be checked.
func (l *Load) carry(ctx context.Context, p *readBatch, large <-chan struct{}, ready chan<- int) error {
	if !p.small() {
		defer func() { <-large }()
	}
	sum, err := l.move(ctx, p)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.report.add(p.reads[0].File, &sum)
	l.report.Moved = time.Since(l.start)
	l.mu.Unlock()
	for _, r := range p.reads {
		for t := r.First; t <= r.Last; t++ {
			if l.checks(t) {
				l.devices[l.plan.Buffers[r.Buffer].Device].checker.queue <- l.arrival(r, t)
			} else if l.arrived(t) {
				ready <- t
			}
		}
	}
	return nil
}

// arrived counts a read of a tensor and reports whether it was the last.
func (l *Load) arrived(t int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[t]--
	return l.left[t] == 0 && l.plan.Tensors[t].Len > 0
}
