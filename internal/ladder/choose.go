package ladder

import "github.com/culvert-io/culvert/route"

// Traits are all that choosing knows about a route for one source.
type Traits struct {
	ID    route.ID
	Scope string // the requests that it accepts, for people; empty for all

	Direct      bool // the drive moves the bytes; none enter host memory
	Parallel    bool // one request or batch is moved by several threads
	KeepsMemory bool // the route's own mapping keeps registered memory from reuse

	Reads, Writes bool
	HostMemory    bool   // also accepts memory that is not on a GPU
	Registered    bool   // accepts only buffers that the route has prepared
	Max           uint64 // the largest request; 0 for any
	// Block is the unit in which the route moves data; 0 for any range. Unaligned
	// ends go through host memory, unless the route is required.
	Block uint64
	// Bounce means that a required route moves what is unaligned or not registered
	// through GPU memory of its own. It cannot do so for unaligned writes.
	Bounce bool
	// Limit is the load up to which the route is faster than a parallel one.
	Limit Limit
	// Share is the load at which the route shares a read with a parallel one.
	Share Share
	// SinglePread is the length below which a read into a prepared buffer is one
	// pread into Route.Mapping; 0 if no read is.
	SinglePread uint64

	texts *[numReasons]*route.Decline
}

// A Limit bounds the load on a route. Requests shorter than From are never limited.
type Limit struct {
	From  uint64 // length from which a request is limited
	Reads int32  // such requests at a time, at most
	Batch uint64 // bytes of one batch, at most
}

// A Share says which reads a route moves together with another one, each a part of the
// read: those of From bytes and more, while Least to Most reads run on both routes, this one
// included. Most is 0 for none.
type Share struct {
	From        uint64
	Least, Most int32
}

// A Shape is what choosing knows about a request.
type Shape struct {
	Dir        route.Dir
	Off        int64
	Len        uint64
	Batch      uint64 // bytes of the batch that it is part of; 0 if it is alone
	OnDevice   bool   // the memory is on a GPU
	Registered bool   // the memory is part of a registered buffer
	InStream   bool   // a stream waits for it
	Strict     bool   // no part may take another route
}

// A State is what a route knows about a request at this moment.
type State struct {
	Prepared   bool           // the route has prepared the registered buffer
	Misaligned bool           // memory and offset differ modulo Block
	NotCached  bool           // not in the page cache, which the file must not fill
	InFlight   int32          // requests of Limit.From and more that run now
	Load       int32          // InFlight, and what runs on the route that shares reads with this one
	Learned    *route.Decline // an earlier transfer was rejected
}

// A reason says why a route does not accept a request.
type reason uint8

const (
	accepted reason = iota
	badDirection
	hostMemory
	tooLarge
	partialBlock // strict, and not in whole blocks
	unregistered // the memory is not a registered buffer
	noWholeBlock // nothing for the drive to move
	unprepared   // registered, but the route could not prepare the buffer
	phase        // memory and offset differ modulo the block size
	learned      // rejected before
	notCached
	busy       // the limit of concurrent reads is reached
	largeBatch // the batch is over the limit

	numReasons = iota
)

// choose returns the index of the route for a request: the first that accepts it.
// A route over its limit is passed over only if a parallel route follows that
// accepts the request. now returns the state of route i, which may cost system calls; it
// is called at most once for each route. why, empty before, receives the reasons of the
// better routes. The result is -1 if no route accepts the request.
func choose(plan []Traits, op *Shape, now func(i int) State, why *route.Declined) int {
	over := -1 // the best route that is over its limit
	for i := range plan {
		t := &plan[i]
		var state State
		r := t.excludes(op)
		if r == accepted { // or else nothing of it is asked
			state = now(i)
			r = admit(t, op, state)
		}
		if r == accepted && (over < 0 || t.Parallel) {
			return i
		}
		if over < 0 && (r == busy || r == largeBatch) {
			over = i
		}
		if r != accepted {
			why[t.ID] = t.decline(r, state)
		}
	}
	if over >= 0 { // no parallel route: better over the limit than a worse route
		for i := over; i < len(plan); i++ {
			why[plan[i].ID] = nil
		}
	}
	return over
}

// decline is the text of a reason.
func (t *Traits) decline(r reason, now State) *route.Decline {
	if r == learned {
		return now.Learned
	}
	return t.texts[r]
}

// excludes checks what no state changes.
func (t *Traits) excludes(op *Shape) reason {
	switch {
	case op.Dir == route.Read && !t.Reads, op.Dir == route.Write && !t.Writes:
		return badDirection
	case !op.OnDevice && !t.HostMemory:
		return hostMemory
	case t.Max > 0 && op.Len > t.Max:
		return tooLarge
	}
	return accepted
}

// admit checks a request against the traits and the state of a route that does not exclude
// it.
func admit(t *Traits, op *Shape, now State) reason {
	if r := t.fits(op, now); r != accepted {
		return r
	}
	switch {
	case now.Learned != nil:
		return learned
	case now.NotCached:
		return notCached
	case t.Limit.Batch > 0 && op.Batch > t.Limit.Batch:
		return largeBatch
	case t.Limit.Reads > 0 && op.Len >= t.Limit.From && now.InFlight >= t.Limit.Reads && !t.shares(op, now):
		return busy
	}
	return accepted
}

// shares reports whether a request that the route accepts is to be shared.
func (t *Traits) shares(op *Shape, now State) bool {
	s := &t.Share
	return op.Len >= s.From && op.Batch == 0 && !op.Strict && !op.InStream &&
		now.Load+1 >= s.Least && now.Load+1 <= s.Most
}

// fits checks registration and alignment.
func (t *Traits) fits(op *Shape, now State) reason {
	whole := t.Block == 0 || (uint64(op.Off)|op.Len)%t.Block == 0
	if op.Strict && t.Bounce {
		if op.Dir == route.Write && !whole {
			return partialBlock
		}
		return accepted
	}
	switch {
	case op.Strict && !whole:
		return partialBlock
	case t.Registered && !op.Registered:
		return unregistered
	case t.Block > 0 && !hasBlock(op, t.Block):
		return noWholeBlock
	case t.Registered && !now.Prepared:
		return unprepared
	case t.Block > 0 && now.Misaligned:
		return phase
	}
	return accepted
}

// hasBlock reports whether a request contains a whole block.
func hasBlock(op *Shape, block uint64) bool {
	from := (uint64(op.Off) + block - 1) / block
	return (uint64(op.Off)+op.Len)/block > from
}
