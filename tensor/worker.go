package tensor

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// run starts the goroutines of one device: one that gives its reads out in
// order, and Depth that carry them out.
func (l *Load) run(ctx context.Context, g *errgroup.Group, device int, ready chan<- int) {
	queue := make(chan *Read)
	g.Go(func() error {
		defer close(queue)
		return l.feed(ctx, device, queue, ready)
	})
	for range l.opts.Depth {
		g.Go(func() error {
			for r := range queue {
				if err := l.carry(ctx, r, ready); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// feed gives the reads of a device out in the order of the plan. Where the load
// streams, it waits for room.
func (l *Load) feed(ctx context.Context, device int, queue chan<- *Read, ready chan<- int) error {
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
	for i := range l.plan.Reads {
		r := &l.plan.Reads[i]
		if l.plan.Buffers[r.Buffer].Device != device {
			continue
		}
		if err := l.room(ctx, device, r.Buffer); err != nil {
			return err
		}
		select {
		case queue <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
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

// carry makes one read of the plan and tells who became ready by it.
func (l *Load) carry(ctx context.Context, r *Read, ready chan<- int) error {
	l.mu.Lock()
	dst := l.buffers[r.Buffer].Slice(r.Dst, uint64(r.Size()))
	l.mu.Unlock()
	sum, err := l.read(ctx, r, dst)
	if err != nil {
		return l.blame(r, err)
	}
	l.mu.Lock()
	l.report.add(r.File, &sum)
	var complete []int
	for t := r.First; t <= r.Last; t++ {
		if l.left[t]--; l.left[t] == 0 && l.plan.Tensors[t].Len > 0 {
			complete = append(complete, t)
		}
	}
	l.mu.Unlock()
	for _, t := range complete {
		if err := l.verify(t); err != nil {
			return err
		}
		ready <- t
	}
	return nil
}

// maxBatch is how many runs of a strided read travel together: enough to share
// the cost of a copy, few enough that stopping does not take long.
const maxBatch = 4096

func (l *Load) read(ctx context.Context, r *Read, dst gpu.Span) (sum route.Receipt, err error) {
	pieces := make([]Piece, 0, min(r.Count, maxBatch))
	for i := int64(0); i < r.Count; {
		pieces = pieces[:0]
		for ; i < r.Count && len(pieces) < maxBatch; i++ {
			pieces = append(pieces, Piece{r.Off + i*r.Stride, dst.Slice(uint64(i*r.Len), uint64(r.Len))})
		}
		rec, err := l.files[r.File].Read(ctx, pieces)
		sum.Add(&rec)
		if err != nil {
			return sum, err
		}
	}
	if sum.Bytes != r.Size() {
		return sum, fmt.Errorf("%s is shorter than when it was planned: %d bytes are missing: %w", l.plan.Files[r.File], r.Size()-sum.Bytes, io.ErrUnexpectedEOF)
	}
	return sum, nil
}

func (l *Load) blame(r *Read, err error) error {
	name := l.plan.Tensors[r.First].Name
	if r.Last > r.First {
		name += fmt.Sprintf(" and %d more", r.Last-r.First)
	}
	return fmt.Errorf("loading %s to gpu:%d: %w", name, l.plan.Buffers[r.Buffer].Device, err)
}

// verify compares a tensor on the device with its sum in the manifest.
func (l *Load) verify(t int) error {
	p := &l.plan.Tensors[t]
	if !l.opts.Verify || p.Whole != nil {
		return nil
	}
	want, ok := l.sums[p.File][p.Name]
	if !ok {
		return &ChecksumError{File: l.plan.Files[p.File], Tensor: p.Name, Detail: "the manifest does not have it"}
	}
	l.mu.Lock()
	span := l.buffers[p.Buffer].Slice(p.Off, p.Len)
	l.mu.Unlock()
	got, err := l.devices[span.Dev].summer.sum(span)
	if err != nil {
		return fmt.Errorf("verifying %s on gpu:%d: %w", p.Name, span.Dev, err)
	}
	if got != want {
		return &ChecksumError{File: l.plan.Files[p.File], Tensor: p.Name, Detail: fmt.Sprintf("CRC-32C on gpu:%d is %v, the manifest says %v", span.Dev, got, want)}
	}
	return nil
}
