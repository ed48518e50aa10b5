package ring

import (
	"context"
	"time"
)

// A batch is the requests of one Run. scheduler.mu guards it; its caller owns it
// before scheduler.run and afterwards.
type batch struct {
	ctx  context.Context
	reqs []Request
	res  []Result
	prog []progress // one per request

	next    int   // the request to take from
	left    int64 // bytes not yet taken
	busy    int   // chunks in flight
	share   int64 // bytes taken, for fairness: see scheduler.pickLocked
	waiting bool  // the caller sleeps on done
	done    chan struct{}

	hasCaller bool // the caller works on it, with a pipeline
	oneChunk  bool // not to be split for workers: see fileIO.singleColdRead
	split     bool // but read in two halves: see splitReads
	began     time.Time

	coalesceLen int64 // requests up to this size share a slot

	// Memory that is kept for the next Run.
	one  [1]progress
	many []progress
}

// progress is how far a request has come.
type progress struct {
	len    int64       // of the request; 0 if it was rejected
	cut    int64       // bytes taken, from the start
	good   int64       // where the first shortfall is; len if there is none
	err    error       // of that shortfall; nil at the end of the file
	mapped fileMapping // to store into: see mappedWrites
}

// maxKept is how many requests an idle batch keeps memory for.
const maxKept = 4096

func newBatch(coalesceLen int64) *batch {
	return &batch{done: make(chan struct{}, 1), coalesceLen: coalesceLen}
}

func (b *batch) reset(ctx context.Context, reqs []Request, res []Result) {
	b.ctx, b.reqs, b.res = ctx, reqs, res
	b.next, b.left, b.busy, b.share = 0, 0, 0, 0
	b.waiting, b.hasCaller, b.oneChunk, b.split = false, false, false, false
	switch {
	case len(reqs) == 1:
		b.one[0] = progress{}
		b.prog = b.one[:]
	case len(reqs) > cap(b.many):
		b.many = make([]progress, len(reqs))
		b.prog = b.many
	default:
		b.prog = b.many[:len(reqs)]
		clear(b.prog)
	}
	for i := range reqs {
		p := &b.prog[i]
		if err := reqs[i].check(); err != nil {
			p.err = err
			continue
		}
		p.len, p.good = reqs[i].Len, reqs[i].Len
		b.left += p.len
	}
}

// release forgets the caller's memory.
func (b *batch) release() {
	b.ctx, b.reqs, b.res, b.prog = nil, nil, nil, nil
	if cap(b.many) > maxKept {
		b.many = nil
	}
}

// fail ends request i at n, unless it ended earlier. What was not taken yet is
// skipped.
func (b *batch) fail(i int, n int64, err error) {
	p := &b.prog[i]
	if n < p.good {
		p.good, p.err = n, err
	}
	b.left -= p.len - p.cut
	p.cut = p.len
}

// cancel skips all that was not taken yet.
func (b *batch) cancel(cause error) {
	for i := b.next; i < len(b.reqs); i++ {
		q, p := &b.reqs[i], &b.prog[i]
		if p.cut < p.len {
			b.fail(i, p.cut, &Error{q.verb(), q.Off + p.cut, p.len - p.cut, q.Addr, cause})
		}
	}
}

func (b *batch) finished() bool { return b.left == 0 && b.busy == 0 }

// account adds the outcome of a segment.
func (b *batch) account(seg *segment) {
	res := &b.res[seg.req]
	res.HostBytes += int64(seg.got - seg.window)
	res.WindowBytes += int64(seg.window)
	res.DirectBytes += int64(seg.direct)
	if !b.reqs[seg.req].Write {
		use := seg.cacheUse()
		res.Cache.Add(&use)
	}
	res.Retries += seg.retries
	if seg.got < seg.n || seg.err != nil {
		b.fail(seg.req, seg.off+int64(seg.got), seg.err)
	}
}

// finish writes the results of a finished batch.
func (b *batch) finish() {
	for i := range b.prog {
		b.res[i].N, b.res[i].Err = b.prog[i].good, b.prog[i].err
		b.reqs[i].count(&b.res[i])
	}
}

// wakeCaller tells a caller that waits that its batch is finished, once. The
// scheduler is locked.
func (b *batch) wakeCaller() {
	if b.waiting && b.finished() {
		b.waiting = false
		b.done <- struct{}{}
	}
}

// takesTurns reports that the next chunk is written with pwrite through the page cache.
// Cut into smaller chunks, other threads would wait for the file as well.
func (b *batch) takesTurns() bool {
	q := &b.reqs[b.next]
	return q.Write && q.Direct < 0 && q.Source == nil && b.prog[b.next].mapped.mem == nil && !b.coalesces(b.next)
}
