package route

import (
	"context"
	"errors"

	"github.com/culvert-io/culvert/gpu"
)

// ErrFreed means that registered memory was freed, or freed and allocated again
// for something else.
var ErrFreed = errors.New("the memory was freed after it was registered")

// A holder is a route that writes to registered memory by a mapping of its own,
// which keeps the memory from being used for anything else. The others write to
// addresses.
type holder interface{ holds() }

// runLive runs the ops of a rung and makes sure that their buffers outlive them.
// An address is looked at before it is written to, because somebody else may own
// it by now, and afterwards, because what was freed under way must not be
// reported as done. A mapping keeps its memory, so that a late answer does no
// harm; two prompt ones would cost a small read through BAR1 half of its time.
func runLive(ctx context.Context, r Route, ops []Op, res []Receipt) error {
	look := Registration.Live
	if _, ok := r.(holder); ok {
		look = Registration.LiveLately
	} else if err := live(ops, look); err != nil {
		return err
	}
	err := r.Run(ctx, ops, res)
	if lerr := live(ops, look); lerr != nil {
		return errors.Join(lerr, err)
	}
	return err
}

// live asks once for neighbouring ops with the same buffer.
func live(ops []Op, look func(Registration, gpu.Span) error) error {
	for i := 0; i < len(ops); {
		buf, span := ops[i].Buf, ops[i].Mem
		for i++; i < len(ops) && ops[i].Buf == buf; i++ {
			span = union(span, ops[i].Mem)
		}
		if buf == nil {
			continue
		}
		if err := look(buf, span); err != nil {
			return err
		}
	}
	return nil
}

// union is the smallest span around two of one buffer.
func union(a, b gpu.Span) gpu.Span {
	end := max(a.Off+a.Len, b.Off+b.Len)
	a.Off = min(a.Off, b.Off)
	a.Len = end - a.Off
	return a
}
