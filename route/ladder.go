package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
)

// A Ladder holds the routes to one GPU, best first.
type Ladder struct {
	rungs []Route
	// absent are the rungs that this machine does not have at all, with the
	// reason; they stand in every plan.
	absent  []*Decline
	ceiling *ceiling // of the link to the GPU; nil where there is none
}

// NewLadder sorts the routes into their order.
func NewLadder(routes []Route, absent []*Decline) *Ladder {
	l := &Ladder{rungs: slices.Clone(routes), absent: slices.Clone(absent)}
	slices.SortStableFunc(l.rungs, func(a, b Route) int { return int(a.ID()) - int(b.ID()) })
	return l
}

// A registrar is a route that prepares registered buffers.
type registrar interface {
	Register(gpu.Span, gpu.Kind)
	Deregister(gpu.Span)
}

// Register tells the routes about a buffer that will be used again; Deregister
// makes them let go of it.
func (l *Ladder) Register(span gpu.Span, kind gpu.Kind) {
	for _, r := range l.rungs {
		if r, ok := r.(registrar); ok {
			r.Register(span, kind)
		}
	}
}

// Deregister is the inverse of Register. No transfer may use the buffer.
func (l *Ladder) Deregister(span gpu.Span) {
	for _, r := range l.rungs {
		if r, ok := r.(registrar); ok {
			r.Deregister(span)
		}
	}
}

// Routes lists the rungs that the machine has, best first.
func (l *Ladder) Routes() []ID { return ids(l.rungs) }

func ids(routes []Route) []ID {
	list := make([]ID, len(routes))
	for i, r := range routes {
		list[i] = r.ID()
	}
	return list
}

// Close closes the routes.
func (l *Ladder) Close() error {
	var errs []error
	for _, r := range l.rungs {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// A Plan is what a ladder found out for one file: the rungs that can be used,
// and why the others cannot. It does not change, so that a lookup is all that a
// transfer pays.
type Plan struct {
	usable   []Route
	declined []*Decline // of the rungs that the file cannot use
	required ID         // or better; None where any will do
	ceiling  *ceiling
}

// Plan probes every rung for the file.
func (l *Ladder) Plan(f *storage.File) *Plan {
	p := &Plan{declined: slices.Clone(l.absent), ceiling: l.ceiling}
	for _, r := range l.rungs {
		if d := r.Probe(f); d != nil {
			p.declined = append(p.declined, d)
			continue
		}
		p.usable = append(p.usable, r)
	}
	slices.SortStableFunc(p.declined, func(a, b *Decline) int { return int(a.Route) - int(b.Route) })
	p.setBorder(f)
	return p
}

// setBorder gives the bar route, where the ring is the alternative, the border
// between the two for this file's file system.
func (p *Plan) setBorder(f *storage.File) {
	at := slices.IndexFunc(p.usable, func(r Route) bool { return r.ID() == Bar })
	ring := slices.IndexFunc(p.usable, func(r Route) bool { return r.ID() == Ring })
	if at < 0 || ring < 0 {
		return
	}
	if bar, ok := p.usable[at].(*BarRoute); ok {
		p.usable[at] = bar.upTo(p.usable[ring], f)
	}
}

// Best is the first usable rung.
func (p *Plan) Best() ID {
	if len(p.usable) == 0 {
		return None
	}
	return p.usable[0].ID()
}

// Usable lists the rungs that the file can use, best first.
func (p *Plan) Usable() []ID { return ids(p.usable) }

// A Use is a usable rung and the requests that it takes; "" where it takes all
// that the rungs above it leave.
type Use struct {
	Route ID     `json:"route"`
	For   string `json:"for,omitempty"`
}

// Uses lists the rungs that requests between the file and GPU memory will take,
// best first, down to the one that takes everything.
func (p *Plan) Uses() []Use {
	var uses []Use
	for _, r := range p.usable {
		scope := ""
		if s, ok := r.(interface{ Scope() string }); ok {
			scope = s.Scope()
		}
		uses = append(uses, Use{r.ID(), scope})
		if scope == "" {
			break
		}
	}
	return uses
}

// Declined lists the rungs that the file cannot use, best first, with reasons.
func (p *Plan) Declined() []*Decline { return p.declined }

// Only returns a plan that uses this one rung and fails where it does not take
// a request, or an error that says why the file cannot use it.
func (p *Plan) Only(id ID) (*Plan, error) {
	for _, r := range p.usable {
		if r.ID() == id {
			return &Plan{usable: []Route{alone(r)}, declined: p.declined, required: id, ceiling: p.ceiling}, nil
		}
	}
	why := slices.DeleteFunc(p.reasons(id), func(d *Decline) bool { return d.Route != id })
	if len(why) == 0 {
		why = []*Decline{{id, "client", "this version of Culvert has no such route", ""}}
	}
	return nil, &RequireError{Want: id, Got: p.Best(), Declined: why}
}

// alone is a rung that does without others: for what is ragged, and for what an
// alternative would do faster.
func alone(r Route) Route {
	if b, ok := r.(*barUpTo); ok {
		r = b.BarRoute
	}
	if s, ok := r.(interface{ strict() Route }); ok {
		return s.strict()
	}
	return r
}

// AtLeast returns a plan that uses the rungs from the best down to id and fails
// where none of them takes a request, or an error that says why the file can use
// none of them.
func (p *Plan) AtLeast(id ID) (*Plan, error) {
	if err := p.Require(id); err != nil {
		return nil, err
	}
	q := &Plan{declined: p.declined, required: id, ceiling: p.ceiling}
	for _, r := range p.usable {
		if r.ID() > id {
			break
		}
		if id < Ring || id < Host && r.ID() != Bar {
			r = alone(r) // its ragged ends may go by way of the host
		}
		q.usable = append(q.usable, r)
	}
	return q, nil
}

// Require returns an error unless the best usable rung is at least as good as id.
func (p *Plan) Require(id ID) error {
	if best := p.Best(); best != None && best <= id {
		return nil
	}
	return &RequireError{Want: id, Got: p.Best(), Declined: p.reasons(id)}
}

func (p *Plan) reasons(upTo ID) []*Decline {
	var ds []*Decline
	for _, d := range p.declined {
		if d.Route <= upTo {
			ds = append(ds, d)
		}
	}
	return ds
}

// A RequireError says that a route was required and cannot be had.
type RequireError struct {
	Want, Got ID
	Declined  []*Decline
}

func (e *RequireError) Error() string {
	var b strings.Builder
	if e.Got == None {
		fmt.Fprintf(&b, "route %s was required and does not take this request", e.Want)
	} else {
		fmt.Fprintf(&b, "route %s was required, the best here is %s", e.Want, e.Got)
	}
	for _, d := range e.Declined {
		b.WriteString("; " + d.String())
	}
	return b.String()
}

// ErrNoRoute is returned when no rung takes a request. With the host rung in the
// ladder it cannot happen.
var ErrNoRoute = errors.New("no route takes this request")

// Run moves the ops of a batch, each by the first rung that takes it, and fills
// the receipts. Neighbouring ops that the same rung takes go to it as one batch.
func (p *Plan) Run(ctx context.Context, ops []Op, res []Receipt) error {
	var first error
	for i, tries := 0, 0; i < len(ops); {
		r, why := p.choose(&ops[i], &res[i].Declined)
		if r == nil {
			return p.refuse(&ops[i], why)
		}
		j := i + 1
		for j < len(ops) && p.takes(r, &ops[j], &res[j].Declined) {
			j++
		}
		took, err := runLive(ctx, r, ops[i:j], res[i:j])
		if tries++; tries <= len(p.usable) && refused(err, res[i:j]) {
			continue // to the rung below
		}
		if err == nil {
			err = gone(ops[i:j], res[i:j])
		}
		for k := i; k < j; k++ {
			p.finish(&res[k], &ops[k], r.ID(), took)
		}
		if err != nil {
			first = err
			break
		}
		i, tries = j, 0
	}
	return first
}

// gone finds the drive that was pulled out: the kernel lets a descriptor of it
// read nothing, without an error, as if the device ended there.
func gone(ops []Op, res []Receipt) error {
	for i := range ops {
		op, end := &ops[i], ops[i].Off+res[i].Bytes
		if op.File == nil || op.Dir != Read || uint64(res[i].Bytes) == op.Mem.Len {
			continue
		}
		if c := op.File.Facts.Capacity; end < c {
			return op.failAt(end, "", fmt.Errorf("nothing comes from here on of a device of %d bytes: it was removed: %w", c, unix.ENXIO))
		}
	}
	return nil
}

// choose finds the first rung that takes the op, and notes why those above it do
// not: a rung that is asked later may answer otherwise. why is the last refusal.
func (p *Plan) choose(op *Op, ds *Declined) (r Route, why *Decline) {
	for _, r := range p.usable {
		if why = r.Takes(op); why == nil {
			return r, nil
		}
		ds[r.ID()] = why
	}
	return nil, why
}

// takes reports whether r is the rung that choose finds for op.
func (p *Plan) takes(r Route, op *Op, ds *Declined) bool {
	got, _ := p.choose(op, ds)
	return got == r
}

func (p *Plan) refuse(op *Op, why *Decline) error {
	if why == nil {
		return ErrNoRoute
	}
	if p.required != None {
		return &RequireError{Want: p.required, Got: None, Declined: []*Decline{why}}
	}
	return fmt.Errorf("%w: %s", ErrNoRoute, why)
}

// finish fills in what every route would fill in alike.
func (p *Plan) finish(r *Receipt, op *Op, id ID, took time.Duration) {
	r.Dir = op.Dir
	r.Time = took
	r.Ceiling = p.ceiling.of(op.Dir)
	if r.By == [numIDs]int64{} {
		r.By[id] = r.Bytes
	}
	r.settle()
	for _, d := range p.declined { // the rungs that the file cannot use at all
		if d.Route < id {
			r.Declined[d.Route] = d
		}
	}
}
