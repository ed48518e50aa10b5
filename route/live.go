package route

import (
	"context"
	"errors"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// ErrFreed means that registered memory was freed, or freed and allocated again
// for something else.
var ErrFreed = errors.New("the memory was freed after it was registered")

// A holder is a route that writes to registered memory by a mapping of its own.
// When the owner frees the memory the mapping keeps it from others; of memory that
// CUDA has cut from a block it shows what has come to lie at the same address. The
// other routes write to addresses.
type holder interface{ holds() }

// runLive runs the ops of a rung and makes sure that their buffers outlive them.
// An address is looked at before it is written to, because somebody else may own
// it by now, and afterwards, because what was freed under way must not be
// reported as done. A mapping writes to memory that nobody else has, or to the
// address that it was given, so that the answer may come late; two prompt ones
// would cost a small read through BAR1 half of its time.
// took is the time of the run itself.
func runLive(ctx context.Context, r Route, ops []Op, res []Receipt) (took time.Duration, err error) {
	_, keeps := r.(holder)
	start := Now()
	if !keeps {
		if err := live(ops, 0); err != nil {
			return 0, err
		}
	}
	err = r.Run(ctx, ops, res)
	end := Now()
	lately := end
	if !keeps {
		lately = 0
	}
	if lerr := live(ops, lately); lerr != nil {
		err = errors.Join(lerr, err)
	}
	return end - start, err
}

// Now is the time since the process began, as near as matters: one reading of
// the clock, where time.Now takes two. It is what LiveLately is told.
func Now() time.Duration { return time.Since(began) }

var began = time.Now()

// live asks once for neighbouring ops with the same buffer; promptly, or with an
// answer that may be a little older than lately.
func live(ops []Op, lately time.Duration) error {
	for i := 0; i < len(ops); {
		buf, span := ops[i].Buf, ops[i].Mem
		for i++; i < len(ops) && ops[i].Buf == buf; i++ {
			span = union(span, ops[i].Mem)
		}
		if buf == nil {
			continue
		}
		var err error
		if lately != 0 {
			err = buf.LiveLately(span, lately)
		} else {
			err = buf.Live(span)
		}
		if err != nil {
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
