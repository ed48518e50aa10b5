package ladder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/route"
)

// A Plan is what a ladder found for one source: the routes that can be used, with
// their traits, and why the others cannot. It does not change.
type Plan struct {
	routes   []Route
	traits   []Traits // of routes, at the same index
	declined []*route.Decline
	required route.ID // or better, for messages; None for any
	strict   bool     // no part of a request may take a route that is not in routes
	pinned   *tune.PinnedRate
	prover   *prover // nil: what direct routes report is believed
}

// Plan probes every route for a source.
func (l *Ladder) Plan(src Source) *Plan {
	p := &Plan{declined: slices.Clone(l.absent), pinned: l.pinned, prover: l.prover}
	for _, r := range l.routes {
		switch t, d := r.Traits(src); {
		case d != nil:
			p.declined = append(p.declined, d)
		case t.ID != route.None:
			p.routes, p.traits = append(p.routes, r), append(p.traits, t)
		}
	}
	p.sort()
	return p
}

func (p *Plan) sort() {
	slices.SortStableFunc(p.declined, func(a, b *route.Decline) int { return int(a.Route) - int(b.Route) })
}

// Try has each route read one block of the source if only a transfer can tell
// whether it works, and returns a plan without those that do not, or whose reads have not
// arrived before.
func (p *Plan) Try(src Source) *Plan {
	q := *p
	q.routes, q.traits, q.declined = nil, nil, slices.Clone(p.declined)
	for i, r := range p.routes {
		t := p.traits[i]
		d := p.prover.distrust(&t, src)
		if d == nil {
			d = r.Try(src)
		}
		if d != nil {
			q.declined = append(q.declined, d)
			continue
		}
		q.routes, q.traits = append(q.routes, r), append(q.traits, t)
	}
	q.sort()
	return &q
}

// Describe returns the plan for people and programs.
func (p *Plan) Describe() *route.Plan {
	d := &route.Plan{Declined: p.declined}
	for i := range p.traits {
		t := &p.traits[i]
		d.Uses = append(d.Uses, route.Use{Route: t.ID, For: t.Scope, Direct: t.Direct, Registered: t.Registered, Block: int64(t.Block)})
	}
	return d
}

// Best is the first usable route.
func (p *Plan) Best() route.ID {
	if len(p.traits) == 0 {
		return route.None
	}
	return p.traits[0].ID
}

// Only returns a plan that uses one route and fails where it does not accept a
// request, or an error that says why the source cannot use it.
func (p *Plan) Only(id route.ID) (*Plan, error) {
	for i := range p.traits {
		if p.traits[i].ID == id {
			q := p.slice(i, i+1)
			q.required, q.strict = id, true
			return q, nil
		}
	}
	e := &route.RequireError{Want: id, Got: p.Best()}
	for _, d := range p.declined {
		if d.Route == id {
			e.Declined = append(e.Declined, d)
		}
	}
	if len(e.Declined) == 0 {
		e.Declined = []*route.Decline{elsewhere(id)}
	}
	return nil, e
}

// elsewhere says why a route is none between a file of this host and a GPU.
func elsewhere(id route.ID) *route.Decline {
	switch id {
	case route.RDMA:
		return decline(id, "source", "the file is on this host, and the route is between hosts", "culvert cp rdma://HOST:PORT/NAME FILE")
	case route.NVMe:
		return decline(id, "source", "the route is between a drive without a file system and a GPU", "culvert cp nvme://DRIVE FILE")
	}
	return decline(id, "client", "this machine has no such route", "")
}

// AtLeast returns a plan that uses the routes from the best down to id and fails
// where none of them accepts a request, or an error that says why the source can
// use none of them.
func (p *Plan) AtLeast(id route.ID) (*Plan, error) {
	if err := p.Describe().Require(id); err != nil {
		return nil, err
	}
	n := 0
	for n < len(p.traits) && p.traits[n].ID <= id {
		n++
	}
	q := p.slice(0, n)
	// Unaligned ends go through host memory, which only the last route allows.
	q.required, q.strict = id, id < route.Host
	return q, nil
}

// Staged returns a plan with staged routes only; the others are declined.
func (p *Plan) Staged(why, fix string) *Plan {
	n := 0
	for n < len(p.traits) && !p.traits[n].ID.Staged() {
		n++
	}
	q := p.slice(n, len(p.traits))
	q.declined = slices.Clone(p.declined)
	for _, t := range p.traits[:n] {
		q.declined = append(q.declined, decline(t.ID, "configuration", why, fix))
	}
	q.sort()
	return q
}

func (p *Plan) slice(from, to int) *Plan {
	q := *p
	q.routes, q.traits = p.routes[from:to], p.traits[from:to]
	return &q
}

// SinglePread says which reads into the registered buffer of op are one pread and
// nothing else, so that cufile can lease them to C (see cufile.Lease): those of fewer
// than below bytes, into mem, which is the whole buffer as the CPU sees it. below is 0
// if no read is.
//
// The route must be the first of the plan, since one above it would have to be
// asked about every request. A file that must not fill the page cache must be asked
// what of it is there.
func (p *Plan) SinglePread(op *Op) (mem []byte, below uint64) {
	if len(p.traits) == 0 || p.traits[0].SinglePread == 0 || op.file().Reads().FillsNothing() {
		return nil, 0
	}
	if mem = p.routes[0].Mapping(op.Mem.Base); mem == nil {
		return nil, 0
	}
	return mem, p.traits[0].SinglePread
}

// Run moves the ops of a batch, each over the first route that accepts it, and
// fills the receipts. Neighbouring ops with the same route are run as one batch.
func (p *Plan) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	var batch uint64
	if len(ops) > 1 {
		batch = totalLen(ops)
	}
	for i := range ops {
		ops[i].passed, ops[i].proof, ops[i].lesson = nil, nil, lesson{}
	}
	at, tries := -1, 0
	if len(ops) > 0 {
		at = p.choose(&ops[0], batch, &res[0].Declined)
	}
	for i := 0; i < len(ops); {
		if at < 0 {
			return p.refuse(&res[i].Declined)
		}
		j, next := i+1, at
		for ; j < len(ops); j++ {
			if next = p.choose(&ops[j], batch, &res[j].Declined); next != at {
				break
			}
		}
		took, err := p.runChecked(ctx, at, ops[i:j], res[i:j])
		// Each rejection passes an op on, or all ops of a route.
		if tries++; tries <= len(p.routes)*len(ops) && isRejected(err) {
			if n := movedBefore(err); n > 0 {
				if err := p.end(at, ops[i:i+n], res[i:i+n], took, nil); err != nil {
					return err
				}
				i, tries = i+n, 0
			}
			// The route has learned from it: the next choice passes it over. Op j will be
			// chosen for again, too.
			clear(res[i:min(j+1, len(res))])
			at = p.choose(&ops[i], batch, &res[i].Declined)
			continue
		}
		if err := p.end(at, ops[i:j], res[i:j], took, err); err != nil {
			return err
		}
		i, at, tries = j, next, 0
	}
	return nil
}

// end completes the receipts of ops that a route has run, and returns their error.
func (p *Plan) end(at int, ops []Op, res []route.Receipt, took time.Duration, err error) error {
	if err == nil {
		err = removed(ops, res)
	}
	for k := range ops {
		p.finish(&res[k], &ops[k], p.traits[at].ID, took)
	}
	if len(ops) == 1 && err == nil {
		ops[0].lesson.end(p.traits[at].ID, res[0].Bytes, took)
	}
	return err
}

func totalLen(ops []Op) (n uint64) {
	for i := range ops {
		n += ops[i].Mem.Len
	}
	return n
}

// choose picks the route for an op.
func (p *Plan) choose(op *Op, batch uint64, why *route.Declined) int {
	op.strict = p.strict
	op.windows = p.allowsWindows(op)
	shape := Shape{
		Dir: op.Dir, Off: op.Off, Len: op.Mem.Len, Batch: batch,
		OnDevice: op.Kind.OnDevice(), Registered: op.Buf != nil, InStream: op.InStream, Strict: p.strict,
	}
	return choose(p.traits, &shape, func(i int) State {
		s := p.state(i, op)
		op.shared = p.traits[i].shares(&shape, s)
		return s
	}, why)
}

// state is the state of route i, with what the proofs of arrival have shown.
func (p *Plan) state(i int, op *Op) State {
	s := p.routes[i].State(op)
	if p.traits[i].Direct && s.Learned == nil {
		s.Learned = p.prover.learned(p.traits[i].ID, op)
	}
	return s
}

// refuse is the error for a request that no route accepts; the last route's reason
// is given.
func (p *Plan) refuse(why *route.Declined) error {
	if len(p.traits) == 0 {
		return route.ErrNoRoute
	}
	last := why[p.traits[len(p.traits)-1].ID]
	if p.required != route.None {
		return &route.RequireError{Want: p.required, Got: route.None, Declined: []*route.Decline{last}}
	}
	return fmt.Errorf("%w: %s", route.ErrNoRoute, last)
}

// removed finds a drive that was unplugged: the kernel then reads nothing from its
// descriptor, without an error, as if the device ended there.
func removed(ops []Op, res []route.Receipt) error {
	for i := range ops {
		op := &ops[i]
		if op.Dir != route.Read || uint64(res[i].Bytes) == op.Mem.Len || op.Src == nil || op.file() == nil {
			continue
		}
		if end, size := op.Off+res[i].Bytes, op.file().Facts.Capacity; end < size {
			return op.failAt(end, "", fmt.Errorf("device of %d bytes was removed: %w", size, unix.ENXIO))
		}
	}
	return nil
}

// finish fills in what is the same for every route.
func (p *Plan) finish(r *route.Receipt, op *Op, id route.ID, took time.Duration) {
	r.Dir = op.Dir
	r.Time = took
	r.Ceiling = p.pinned.Get(op.Dir == route.Write)
	if r.By != (route.ByRoute{}) {
		r.Route = r.By.Most()
	} else if r.Bytes > 0 { // all by one route
		r.By[id], r.Route = r.Bytes, id
	}
	if a, ok := op.Src.(annotator); ok {
		a.Annotate(r)
	}
	for _, d := range p.declined { // the routes that the source cannot use at all
		if d.Route < id {
			r.Declined[d.Route] = d
		}
	}
}

// runChecked runs ops on one route and makes sure that their buffers outlive them.
// An address is checked before it is written to, because it may have another owner
// by now, and afterwards, because memory that was freed meanwhile must not be
// reported as filled. A route that keeps the memory by a mapping of its own writes
// to no other memory, so a result up to 1 ms old will do: two fresh ones would double
// the time of a small read through BAR1. took is the time of the run itself.
func (p *Plan) runChecked(ctx context.Context, at int, ops []Op, res []route.Receipt) (took time.Duration, err error) {
	keeps := p.traits[at].KeepsMemory && !ops[0].shared // which writes to addresses, too
	start := now()
	if !keeps {
		if err := checkAllocated(ops, 0); err != nil {
			return 0, err
		}
	}
	if p.traits[at].Direct && p.prover != nil {
		err = p.prover.run(ctx, p.routes[at], &p.traits[at], ops, res)
	} else {
		err = p.routes[at].Run(ctx, ops, res)
	}
	end := now()
	ops[0].Ended = end
	cached := end
	if !keeps {
		cached = 0
	}
	if cerr := checkAllocated(ops, cached); cerr != nil {
		err = errors.Join(cerr, err)
	}
	return end - start, err
}
