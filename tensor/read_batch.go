package tensor

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// A readBatch is reads of one file that are submitted together. A route fills its
// pipelines when a transfer starts and drains them when it ends, so a few large
// transfers are faster than many, and small tensors between large ones cost little.
type readBatch struct {
	reads    []*Read
	bytes    int64
	segments int64
}

const (
	// A batch is an eighth of what is left, within these limits: large at first,
	// smaller towards the end, so that verifying does not fall behind.
	minBatch = 128 << 20
	maxBatch = 512 << 20
	// The first one has this size, and each may be twice the one before. If the
	// first layers must be ready early, all have this size.
	firstBatch = 64 << 20
	// Slow storage gets batches that take about this long, so that progress shows.
	batchTime = time.Second / 4

	// maxSegments is how many segments a route gets at a time: enough to share the
	// cost of a copy, few enough to stop soon.
	maxSegments = 4096
	// smallSegment is the mean size below which a batch consists of single reads on
	// single CPUs, so that many batches run concurrently.
	smallSegment = 256 << 10
)

// small reports whether the batch consists of small segments.
func (b *readBatch) small() bool { return b.bytes < b.segments*smallSegment }

// joins reports whether a batch that is not empty can take r. A strided read has
// many segments already.
func (b *readBatch) joins(r *Read, limit int64) bool {
	last := b.reads[len(b.reads)-1]
	return r.File == last.File && r.Count == 1 && last.Count == 1 && b.segments < maxSegments && b.bytes+r.Size() <= limit
}

func (b *readBatch) add(r *Read) {
	b.reads = append(b.reads, r)
	b.bytes += r.Size()
	b.segments += r.Count
}

// batches makes the batches of a device, in the order of the plan, and sends each.
func (l *Load) batches(ctx context.Context, device int, send func(*readBatch) error) error {
	var left int64
	var reads []*Read
	for i := range l.plan.Reads {
		if r := &l.plan.Reads[i]; l.plan.Buffers[r.Buffer].Device == device {
			reads = append(reads, r)
			left += r.Size()
		}
	}
	b, n := &readBatch{}, 0
	limit := l.batchSize(left, n)
	for _, r := range reads {
		if b.segments > 0 && !b.joins(r, limit) {
			left -= b.bytes
			if err := send(b); err != nil {
				return err
			}
			n++
			b, limit = &readBatch{}, l.batchSize(left, n)
		}
		if err := l.room(ctx, device, r.Buffer); err != nil {
			return err
		}
		b.add(r)
	}
	if b.segments == 0 {
		return nil
	}
	return send(b)
}

// batchSize returns how large batch n may be when so many bytes are left.
func (l *Load) batchSize(left int64, n int) int64 {
	switch {
	case l.opts.Window > 0:
		// A read that waits for room must not hold up one that makes room.
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

// move reads a batch into its memory.
func (l *Load) move(ctx context.Context, b *readBatch) (sum route.Receipt, err error) {
	file := b.reads[0].File
	var segments []segment
	flush := func() error {
		rec, err := l.files[file].read(ctx, segments)
		sum.Add(&rec)
		segments = segments[:0]
		return err
	}
	for _, r := range b.reads {
		dst := l.place(r)
		for i := range r.Count {
			segments = append(segments, segment{r.Off + i*r.Stride, dst.Slice(uint64(i*r.Len), uint64(r.Len))})
			if len(segments) < maxSegments {
				continue
			}
			if err := flush(); err != nil {
				return sum, l.loadError(b, err)
			}
		}
	}
	if len(segments) > 0 {
		err = flush()
	}
	if missing := b.bytes - sum.Bytes; err == nil && missing != 0 {
		err = fmt.Errorf("%s is %d bytes shorter than when it was opened: %w", object.Redact(l.plan.Files[file]), missing, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return sum, l.loadError(b, err)
	}
	return sum, nil
}

// loadError adds the tensors of a batch to an error.
func (l *Load) loadError(b *readBatch, err error) error {
	first, last := b.reads[0].First, b.reads[len(b.reads)-1].Last
	name := l.plan.Tensors[first].Name
	if last > first {
		name += fmt.Sprintf(" and %d more", last-first)
	}
	if l.opts.host == nil {
		name += fmt.Sprintf(" to gpu:%d", l.plan.Buffers[b.reads[0].Buffer].Device)
	}
	return fmt.Errorf("loading %s: %w", name, err)
}
