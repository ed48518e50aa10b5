package tensor

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/culvert-io/culvert/route"
)

// A batch is reads of one file that travel together. A route keeps all its
// lanes busy while a transfer lasts and drains them when it ends, so a few large
// transfers are faster than many, and small tensors between large ones cost
// nothing of their own.
type readBatch struct {
	reads    []*Read
	bytes    int64
	segments int64
}

const (
	// A batch is an eighth of what is left, within these bounds: large ones
	// while there is plenty, smaller ones towards the end, so that checksums are
	// not left behind.
	minBatch = 128 << 20
	maxBatch = 512 << 20
	// The first one is of this size, and each may be twice the one before. Where
	// an early start is wanted they stay so.
	firstBatch = 64 << 20
	// Slow storage gets batches that take about so long, so that progress shows.
	batchTime = time.Second / 4

	// maxSegments is how many segments are handed to a route at a time: enough to
	// share the cost of a copy, few enough that stopping does not take long.
	maxSegments = 4096
	// smallSegment is the mean size below which a batch is a matter of single
	// reads on single cores, so that many batches are carried side by side.
	smallSegment = 256 << 10
)

// small reports whether the batch consists of small segments.
func (p *readBatch) small() bool { return p.bytes < p.segments*smallSegment }

// joins reports whether r may travel with the batch, which is not empty. Runs
// of a strided read are many already.
func (p *readBatch) joins(r *Read, limit int64) bool {
	last := p.reads[len(p.reads)-1]
	return r.File == last.File && r.Count == 1 && last.Count == 1 && p.segments < maxSegments && p.bytes+r.Size() <= limit
}

func (p *readBatch) add(r *Read) {
	p.reads = append(p.reads, r)
	p.bytes += r.Size()
	p.segments += r.Count
}

// batches makes the batches of a device, in the order of the plan, and gives
// each to send.
func (l *Load) batches(ctx context.Context, device int, send func(*readBatch) error) error {
	var left int64
	var reads []*Read
	for i := range l.plan.Reads {
		if r := &l.plan.Reads[i]; l.plan.Buffers[r.Buffer].Device == device {
			reads = append(reads, r)
			left += r.Size()
		}
	}
	p, n := &readBatch{}, 0
	limit := l.batchSize(left, n)
	for _, r := range reads {
		if p.segments > 0 && !p.joins(r, limit) {
			left -= p.bytes
			if err := send(p); err != nil {
				return err
			}
			n++
			p, limit = &readBatch{}, l.batchSize(left, n)
		}
		if err := l.room(ctx, device, r.Buffer); err != nil {
			return err
		}
		p.add(r)
	}
	if p.segments == 0 {
		return nil
	}
	return send(p)
}

// batchSize is how large batch n may be when so many bytes are left.
func (l *Load) batchSize(left int64, n int) int64 {
	switch {
	case l.opts.Window > 0:
		// What waits for room must not keep back what makes it.
		return 0
	case l.opts.batch > 0:
		return l.opts.batch
	case l.plan.early:
		return firstBatch
	}
	size := min(max(left/8, minBatch), maxBatch, firstBatch<<min(n, 3))
	l.mu.Lock()
	defer l.mu.Unlock()
	if moved := l.report.Bytes; moved > 0 {
		rate := float64(moved) / time.Since(l.start).Seconds()
		size = min(size, max(int64(rate*batchTime.Seconds()), firstBatch))
	}
	return size
}

// move reads a batch into its places.
func (l *Load) move(ctx context.Context, p *readBatch) (sum route.Receipt, err error) {
	file := p.reads[0].File
	var segments []segment
	flush := func() error {
		rec, err := l.files[file].read(ctx, segments)
		sum.Add(&rec)
		segments = segments[:0]
		return err
	}
	for _, r := range p.reads {
		dst := l.place(r)
		for i := range r.Count {
			segments = append(segments, segment{r.Off + i*r.Stride, dst.Slice(uint64(i*r.Len), uint64(r.Len))})
			if len(segments) < maxSegments {
				continue
			}
			if err := flush(); err != nil {
				return sum, l.blame(p, err)
			}
		}
	}
	if len(segments) > 0 {
		err = flush()
	}
	if missing := p.bytes - sum.Bytes; err == nil && missing != 0 {
		err = fmt.Errorf("%s is shorter than when it was planned: %d bytes are missing: %w", l.plan.Files[file], missing, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return sum, l.blame(p, err)
	}
	return sum, nil
}

// blame names what a batch was for.
func (l *Load) blame(p *readBatch, err error) error {
	first, last := p.reads[0].First, p.reads[len(p.reads)-1].Last
	name := l.plan.Tensors[first].Name
	if last > first {
		name += fmt.Sprintf(" and %d more", last-first)
	}
	return fmt.Errorf("loading %s to gpu:%d: %w", name, l.plan.Buffers[p.reads[0].Buffer].Device, err)
}
