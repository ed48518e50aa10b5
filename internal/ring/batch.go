package ring

import "context"

// An op is one Run. All of it is guarded by Ring.mu, except that the caller
// owns it before it is started and after it is finished.
type batch struct {
	ctx  context.Context
	reqs []Request
	res  []Result
	prog []progress // one for each request

	next    int   // the request to take from
	left    int64 // bytes not yet taken
	busy    int   // pieces under way
	share   int64 // bytes taken, for fairness: see Ring.pick
	waiting bool  // the caller sleeps on done
	done    chan struct{}

	hasCaller bool // the caller has a lane
	oneChunk  bool // not worth to be cut: see fromDisk
	split     bool // but read in halves, as the contest has it

	coalesceLen int64 // requests up to here share a slot

	// Room that stays with the op when it is used again.
	one     [1]progress
	oneSums [8]summedRange
	many    []progress
}

// progress is how far a request has come.
type progress struct {
	len    int64 // of the request; 0 where it was refused
	cut    int64 // bytes taken, from the start
	good   int64 // where the first shortfall is; len while there is none
	err    error // of that shortfall; nil at the end of the file
	sums   checksums
	mapped mappedPages // to store into: see overwrite
}

// maxKept is how many requests an idle op keeps room for.
const maxKept = 4096

func newBatch(gatherLen int64) *batch {
	return &batch{done: make(chan struct{}, 1), coalesceLen: gatherLen}
}

func (o *batch) reset(ctx context.Context, reqs []Request, res []Result) {
	o.ctx, o.reqs, o.res = ctx, reqs, res
	o.next, o.left, o.busy, o.share, o.waiting, o.hasCaller, o.oneChunk, o.split = 0, 0, 0, 0, false, false, false, false
	switch {
	case len(reqs) == 1:
		o.one[0] = progress{sums: o.oneSums[:0]}
		o.prog = o.one[:]
	case len(reqs) > cap(o.many):
		o.many = make([]progress, len(reqs))
		o.prog = o.many
	default:
		o.prog = o.many[:len(reqs)]
		clear(o.prog)
	}
	for i := range reqs {
		p := &o.prog[i]
		if err := reqs[i].check(); err != nil {
			p.err = err
			continue
		}
		p.len, p.good = reqs[i].Len, reqs[i].Len
		o.left += p.len
	}
}

// release forgets the caller's memory.
func (o *batch) release() {
	o.ctx, o.reqs, o.res, o.prog = nil, nil, nil, nil
	if cap(o.many) > maxKept {
		o.many = nil
	}
}

// fail ends request i at n, unless it ended earlier already. What was not taken
// yet is not taken any more.
func (o *batch) fail(i int, n int64, err error) {
	p := &o.prog[i]
	if n < p.good {
		p.good, p.err = n, err
	}
	o.left -= p.len - p.cut
	p.cut = p.len
}

// cancel drops all that was not taken yet.
func (o *batch) cancel(cause error) {
	for i := o.next; i < len(o.reqs); i++ {
		q, p := &o.reqs[i], &o.prog[i]
		if p.cut < p.len {
			o.fail(i, p.cut, &Error{q.verb(), q.Off + p.cut, p.len - p.cut, q.Addr, cause})
		}
	}
}

func (o *batch) finished() bool { return o.left == 0 && o.busy == 0 }

// account adds the outcome of a part.
func (o *batch) account(p *segment) {
	res := &o.res[p.req]
	res.HostBytes += int64(p.got)
	res.DirectBytes += int64(p.direct)
	res.Retries += p.retries
	if o.reqs[p.req].Sum {
		o.prog[p.req].sums.add(summedRange{p.off, p.off + int64(p.got), p.crc})
	}
	if p.got < p.n || p.err != nil {
		o.fail(p.req, p.off+int64(p.got), p.err)
	}
}

// settle writes the results of a finished op.
func (o *batch) finish() {
	for i := range o.prog {
		p, res := &o.prog[i], &o.res[i]
		res.N, res.Err = p.good, p.err
		if o.reqs[i].Sum && p.err == nil {
			res.Sum = p.sums.prefix(p.good)
		}
	}
}
