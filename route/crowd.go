package route

import (
	"context"
	"errors"
	"sync/atomic"
)

// BAR1 and the copy engine are two ways over the same link, and neither fills it:
// CPU stores through BAR1 end at some 34 GB/s on an H200 whose link carries 55,
// and the ring's copies make their callers wait. So a few larger reads go through
// BAR1 at a time, which is what it takes to fill it, and the others by the ring
// beside them: that carries a third more than either alone.
const (
	// crowdLen is the size from which a read is worth the ring's wait.
	crowdLen = 64 << 10
	// crowdMax is how many such reads go through BAR1 at a time.
	crowdMax = 6
)

// A crowd counts the larger reads that go through BAR1 now.
type crowd struct{ n atomic.Int32 }

// enter takes a place, if there is one.
func (c *crowd) enter() bool {
	if c.n.Add(1) <= crowdMax {
		return true
	}
	c.n.Add(-1)
	return false
}

func (c *crowd) leave() { c.n.Add(-1) }

var (
	barDeclineBusy  = &Decline{Bar, "load", "as many reads as fill BAR1 are under way: this one went beside them", ""}
	barDeclineBatch = &Decline{Bar, "batch", "the batch is large enough for several threads, which the ring has", ""}
)

// Run moves small reads through BAR1, and larger ones as long as it has places.
func (b *barUpTo) Run(ctx context.Context, ops []Op, res []Receipt) error {
	if len(ops) > 1 && length(ops) > borderHigh {
		return b.beside(ctx, ops, res, barDeclineBatch)
	}
	for i := range ops {
		if err := b.runOne(ctx, ops[i:i+1], res[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (b *barUpTo) runOne(ctx context.Context, ops []Op, res []Receipt) error {
	if ops[0].Mem.Len < crowdLen {
		return b.BarRoute.Run(ctx, ops, res)
	}
	if !b.crowd.enter() {
		return b.beside(ctx, ops, res, barDeclineBusy)
	}
	defer b.crowd.leave()
	return b.BarRoute.Run(ctx, ops, res)
}

// beside hands ops to the other route, if it is there. Unlike BAR1 it writes to
// addresses, so that it matters whether the memory is still the buffer's.
func (b *barUpTo) beside(ctx context.Context, ops []Op, res []Receipt, why *Decline) error {
	if b.other.Takes(&ops[0]) != nil {
		return b.BarRoute.Run(ctx, ops, res)
	}
	if err := live(ops, 0); err != nil {
		return err
	}
	err := b.other.Run(ctx, ops, res)
	for i := range ops {
		res[i].By[b.other.ID()] = res[i].Bytes
		res[i].Declined[Bar] = why
	}
	return errors.Join(live(ops, 0), err)
}

func length(ops []Op) (n uint64) {
	for i := range ops {
		n += ops[i].Mem.Len
	}
	return n
}
