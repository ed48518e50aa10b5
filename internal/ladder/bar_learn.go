package ladder

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/route"
)

// A barLearner finds out, on a GPU whose crossover is not known, whether BAR1 or the
// ring is faster for reads of each length between the shortest that is limited and
// crossoverHigh. It learns from reads that happen anyway. Shorter ones are always
// faster through BAR1: the ring's copy alone takes longer than they do.
type barLearner struct {
	classes [learnClasses]lengthClass
}

// A lengthClass is the reads whose lengths have the same power of two above them.
type lengthClass struct {
	choice tune.Choice
	seen   atomic.Int64
}

const (
	learnClasses = 5 // 64, 128, 256, 512 and 1024 KiB
	// learnEarly reads of a class, one in eight, try the route that is not the
	// default one, before the usual 1 %: a border that is wrong by a factor of three
	// then costs a thousand reads 5 %.
	learnEarly = 3
	// learnEvery is which reads count: asking the page cache takes as much as 4 % of
	// a read of 256 KiB.
	learnEvery = 8
)

func newBarLearner() *barLearner {
	l := new(barLearner)
	for i := range l.classes {
		l.classes[i].choice.Early = learnEarly
	}
	return l
}

// class is the class of reads of n bytes; nil if there is nothing to learn.
func (l *barLearner) class(n uint64) *lengthClass {
	if l == nil || n < barLimit.From || n > crossoverHigh {
		return nil
	}
	return &l.classes[bits.Len64((n-1)/barLimit.From)]
}

// first is the route that reads of n bytes take until another is known to be faster.
func (*lengthClass) first(n uint64) route.ID {
	if n <= crossoverDefault {
		return route.Bar
	}
	return route.Ring
}

// pick chooses BAR1 or the ring for a read of n bytes, and says whether to record how
// long it takes.
func (c *lengthClass) pick(n uint64) (id route.ID, record bool) {
	seen, usual := c.seen.Add(1), c.choice.Faster()
	m := c.choice.Pick(int64(n))
	if id = c.first(n); m == tune.Alternative {
		id = route.Bar + route.Ring - id
	}
	return id, m != usual || seen%learnEvery == 1
}

// ask is the answer to an op that could go through BAR1: nil if it should. An op whose
// bytes are in the page cache may be recorded.
func (c *lengthClass) ask(op *Op) *route.Decline {
	id, record := c.pick(op.Mem.Len)
	if record && resident(op) {
		op.lesson = lesson{c, op.Mem.Len}
	}
	if id == route.Bar {
		return nil
	}
	return ringIsFaster
}

// record adds the time of a read of n bytes that were in the page cache.
func (c *lengthClass) record(id route.ID, n uint64, took time.Duration) {
	m := tune.Default
	if id != c.first(n) {
		m = tune.Alternative
	}
	c.choice.Add(m, int64(n), took)
}

// ringIsFaster is the answer to reads for which the ring was.
var ringIsFaster = decline(route.Bar, "size", "the ring was faster for reads of this length, or is being tried", "culvert tune measures it once and for all")

// A lesson is a read whose time is to be recorded.
type lesson struct {
	class *lengthClass
	len   uint64
}

// end records the time of a read that took one of the two routes.
func (l *lesson) end(id route.ID, bytes int64, took time.Duration) {
	if l.class != nil && uint64(bytes) == l.len && (id == route.Bar || id == route.Ring) {
		l.class.record(id, l.len, took)
	}
}
