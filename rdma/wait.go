package rdma

import (
	"context"
	"fmt"
	"math"
)

// Post posts one send work request.
func Post(qp QP, wr SendWR) error {
	one := [1]SendWR{wr}
	_, err := qp.PostSend(one[:])
	return err
}

// PostReceive posts one receive work request.
func PostReceive(qp QP, wr RecvWR) error {
	one := [1]RecvWR{wr}
	_, err := qp.PostRecv(one[:])
	return err
}

// Await waits until at least one completion is there, and polls. It does not look at the
// statuses.
func Await(ctx context.Context, cq CQ, wcs []WC) (int, error) {
	for {
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := cq.Arm(false); err != nil {
			return 0, err
		}
		// A completion between Poll and Arm made no event.
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := cq.Wait(ctx); err != nil {
			return 0, fmt.Errorf("wait for a completion: %w", err)
		}
	}
}

// One waits for one completion and returns its error.
func One(ctx context.Context, cq CQ) (WC, error) {
	var wcs [1]WC
	if _, err := Await(ctx, cq, wcs[:]); err != nil {
		return WC{}, err
	}
	return wcs[0], wcs[0].Err()
}

// drainID marks the last requests of a queue pair that is drained.
const drainID = math.MaxUint64

// Drain puts a queue pair into the error state and polls its queues until everything
// that was posted has completed. other gets every completion on the way, in order, also
// those of other queue pairs with the same queues; it may be nil. No other thread may poll
// the queues, or post to the queue pair, meanwhile, and no request may have the highest
// possible ID.
func Drain(ctx context.Context, qp QP, send, recv CQ, other func(WC)) error {
	if err := qp.Modify(QPAttr{State: ErrState}, MaskState); err != nil {
		return fmt.Errorf("drain QP %#x: %w", qp.Num(), err)
	}
	if err := drainQueue(ctx, qp, send, other, false); err != nil {
		return fmt.Errorf("drain the send queue of QP %#x: %w", qp.Num(), err)
	}
	if err := drainQueue(ctx, qp, recv, other, true); err != nil {
		return fmt.Errorf("drain the receive queue of QP %#x: %w", qp.Num(), err)
	}
	return nil
}

// drainQueue posts a marker and polls until it completes. A full queue gets its marker
// when completions have made room.
func drainQueue(ctx context.Context, qp QP, cq CQ, other func(WC), recv bool) error {
	posted := false
	var wcs [16]WC
	for {
		if !posted {
			posted = mark(qp, recv) == nil
		}
		n, err := Await(ctx, cq, wcs[:])
		if err != nil {
			return err
		}
		done := false
		for _, wc := range wcs[:n] {
			if wc.ID == drainID && wc.QPNum == qp.Num() {
				done = true
			} else if other != nil {
				other(wc)
			}
		}
		if done {
			return nil
		}
	}
}

func mark(qp QP, recv bool) error {
	if recv {
		return PostReceive(qp, RecvWR{ID: drainID})
	}
	return Post(qp, SendWR{ID: drainID, Op: OpSend, Flags: Signaled})
}
