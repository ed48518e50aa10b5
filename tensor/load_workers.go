package tensor

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/gpu"
)

// run starts the goroutines of one device: one that queues its batches in order,
// workers that move them, one that copies from other GPUs, and one that verifies what
// has arrived.
func (l *Load) run(ctx context.Context, g *errgroup.Group, device int, ready chan<- int) {
	queue, large := make(chan *readBatch), make(chan struct{}, l.opts.depth)
	g.Go(func() error {
		defer close(queue)
		return l.feed(ctx, device, ready, func(b *readBatch) error { return l.enqueue(ctx, b, queue, large) })
	})
	var workers sync.WaitGroup
	for range max(l.opts.depth, l.opts.small) {
		workers.Add(1)
		g.Go(func() error {
			defer workers.Done()
			for b := range queue {
				err := l.finish(ctx, b, ready)
				if !b.small() {
					<-large
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if c := l.copiers[device]; c != nil {
		workers.Add(1)
		g.Go(func() error {
			defer workers.Done()
			return c.run(ctx, ready)
		})
	}
	if c := l.devices[device].checker; c != nil {
		g.Go(func() error { return c.run(ctx, ready) })
		g.Go(func() error {
			workers.Wait()
			close(c.queue)
			return nil
		})
	}
}

// single reports whether one read into host memory is all there is to do. Then the
// goroutines of a transfer would take longer than the read.
func (l *Load) single() bool {
	return l.opts.host != nil && !l.opts.Verify && len(l.plan.Reads) <= 1
}

// readSingle reads without goroutines.
func (l *Load) readSingle(ctx context.Context, ready chan<- int) error {
	for _, device := range l.plan.Devices() {
		err := l.feed(ctx, device, ready, func(b *readBatch) error { return l.finish(ctx, b, ready) })
		if err != nil {
			return err
		}
	}
	return nil
}

// feed sends the batches of a device in the order of the plan. With a window it
// waits for room.
func (l *Load) feed(ctx context.Context, device int, ready chan<- int, send func(*readBatch) error) error {
	for i := range l.plan.Tensors {
		t := &l.plan.Tensors[i]
		if t.Len > 0 || l.plan.Buffers[t.Buffer].Device != device {
			continue
		}
		// An empty tensor waits only for its address.
		if err := l.room(ctx, device, t.Buffer); err != nil {
			return err
		}
		ready <- i
	}
	return l.batches(ctx, device, send)
}

// enqueue passes a batch to a worker. Few large batches are in flight at a time: each
// uses the whole machine.
func (l *Load) enqueue(ctx context.Context, b *readBatch, queue chan<- *readBatch, large chan<- struct{}) error {
	if !b.small() {
		select {
		case large <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case queue <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// room waits until a buffer has a place in the window, if there is one.
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

// place returns the memory that a read goes to.
func (l *Load) place(r *Read) gpu.Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffers[r.Buffer].Slice(r.Dst, uint64(r.Size()))
}

// finish moves a batch, and passes tensors on that became complete, or lets them be
// verified.
func (l *Load) finish(ctx context.Context, b *readBatch, ready chan<- int) error {
	sum, err := l.move(ctx, b)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.report.add(b.reads[0].File, &sum)
	l.report.Moved = time.Since(l.start)
	l.mu.Unlock()
	for _, r := range b.reads {
		for t := r.First; t <= r.Last; t++ {
			if l.verifies(t) {
				l.devices[l.plan.Buffers[r.Buffer].Device].checker.queue <- l.arrival(r, t)
			} else if l.arrived(t) {
				l.complete(t, ready)
			}
		}
	}
	return nil
}

// arrived counts a read or a copy of a tensor and reports whether it was the last.
func (l *Load) arrived(t int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[t]--
	return l.left[t] == 0 && l.plan.Tensors[t].Len > 0
}
