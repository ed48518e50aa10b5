package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/rdma"
)

var errGone = errors.New("the memory was deregistered or freed")

// A CQ is a completion queue: an rdma.CQ.
type CQ struct {
	dev *Device

	mu      sync.Mutex
	ring    []rdma.WC
	first   int
	n       int
	overrun bool
	closed  bool
	users   int // queue pairs, by queue
	armed   bool
	onlySol bool
	event   chan struct{} // room for one
}

// Poll implements rdma.CQ.
func (q *CQ) Poll(wcs []rdma.WC) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, fmt.Errorf("poll completion queue: it is closed: %w", syscall.EINVAL)
	}
	n := min(len(wcs), q.n)
	for i := range n {
		wcs[i] = q.ring[q.first]
		q.first = (q.first + 1) % len(q.ring)
	}
	q.n -= n
	if q.overrun && n == 0 && len(wcs) > 0 {
		return 0, errOverrun
	}
	return n, nil
}

var errOverrun = fmt.Errorf("poll completion queue: completions were lost because it was full (fix: create it with room for all posted requests): %w", syscall.EIO)

// Arm implements rdma.CQ.
func (q *CQ) Arm(solicited bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("arm completion queue: it is closed: %w", syscall.EINVAL)
	}
	select { // an event of an earlier Arm
	case <-q.event:
	default:
	}
	q.armed, q.onlySol = true, solicited
	if q.overrun {
		q.wake()
	}
	return nil
}

// Wait implements rdma.CQ.
func (q *CQ) Wait(ctx context.Context) error {
	select {
	case _, ok := <-q.event:
		if !ok {
			return fmt.Errorf("wait for completion queue: it was closed: %w", syscall.EINVAL)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// push adds a completion.
func (q *CQ) push(wc rdma.WC, solicited bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if q.n == len(q.ring) {
		q.overrun = true
	} else {
		q.ring[(q.first+q.n)%len(q.ring)] = wc
		q.n++
	}
	if q.armed && (!q.onlySol || solicited || wc.Status != rdma.Success) {
		q.wake()
	}
}

func (q *CQ) wake() {
	q.armed = false
	select {
	case q.event <- struct{}{}:
	default:
	}
}

// forget drops the completions of a queue pair that was destroyed or reset.
func (q *CQ) forget(qpn uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := 0
	for i := range q.n {
		wc := q.ring[(q.first+i)%len(q.ring)]
		if wc.QPNum != qpn {
			q.ring[(q.first+kept)%len(q.ring)] = wc
			kept++
		}
	}
	q.n = kept
}

func (q *CQ) use(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("the completion queue is closed: %w", syscall.EINVAL)
	}
	q.users += n
	return nil
}

// Close implements rdma.CQ.
func (q *CQ) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("destroy completion queue: it is closed: %w", syscall.EINVAL)
	}
	if q.users > 0 {
		return fmt.Errorf("destroy completion queue: queue pairs use it: %w", syscall.EBUSY)
	}
	q.closed = true
	close(q.event)
	q.dev.drop()
	return nil
}
