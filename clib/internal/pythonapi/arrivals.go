package pythonapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/tensor"
)

// arrivals records which tensors of a load are complete, in their order.
type arrivals struct {
	numbers map[place]int // of the tensors

	mu      sync.Mutex
	order   []int
	there   []bool
	changed chan struct{} // closed and replaced with each arrival
}

// A place names a tensor: ranks on several GPUs have tensors of the same name.
type place struct {
	gpu  int
	name string
}

func newArrivals(tensors []tensor.Tensor) *arrivals {
	a := &arrivals{numbers: map[place]int{}, there: make([]bool, len(tensors)), changed: make(chan struct{})}
	for i := range tensors {
		a.numbers[place{tensors[i].Span.Dev, tensors[i].Name}] = i
	}
	return a
}

// add records that a tensor is complete.
func (a *arrivals) add(t *tensor.Tensor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.numbers[place{t.Span.Dev, t.Name}]
	a.there[i] = true
	a.order = append(a.order, i)
	close(a.changed)
	a.changed = make(chan struct{})
}

// has reports whether tensor i is complete.
func (a *arrivals) has(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.there[i]
}

// since returns the tensors that arrived after the first n, and a channel that is
// closed when there are more.
func (a *arrivals) since(n int) ([]int, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(max(n, 0), len(a.order))
	return append([]int{}, a.order[n:]...), a.changed
}

type arrivedRequest struct {
	Memory       handle.ID `json:"memory"`
	Seen         int       `json:"seen"`         // tensors that the caller knows of
	Milliseconds int64     `json:"milliseconds"` // the longest wait for another one
}

type arrivedAnswer struct {
	Arrived []int `json:"arrived"` // the tensors' numbers
	Bytes   int64 `json:"bytes"`   // read so far
	Total   int64 `json:"total"`   // bytes of all tensors
	Ended   bool  `json:"ended"`   // finish will not wait
}

// arrived waits until a tensor is complete that the caller does not know of, the
// load has ended, or the time is over.
func (a *API) arrived(ctx context.Context, q *arrivedRequest) (*arrivedAnswer, error) {
	m, _, err := lookup[*loaded](a, q.Memory)
	if err != nil {
		return nil, err
	}
	if m.arrivals == nil {
		return nil, errors.New("the memory was not loaded, but attached")
	}
	timer := time.NewTimer(time.Duration(q.Milliseconds) * time.Millisecond)
	defer timer.Stop()
	// The end is seen first: what arrived before it is then in the list.
	ended := m.ended()
	numbers, more := m.arrivals.since(q.Seen)
	if len(numbers) == 0 && !ended {
		select {
		case <-more:
		case <-m.done:
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		ended = m.ended()
		numbers, _ = m.arrivals.since(q.Seen)
	}
	return &arrivedAnswer{Arrived: numbers, Bytes: m.progress(), Total: m.total, Ended: ended}, nil
}

// ended reports whether the load has ended.
func (m *loaded) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// waitFor waits for the bytes of one tensor.
func (m *loaded) waitFor(ctx context.Context, i int) error {
	if m.arrivals != nil && m.arrivals.has(i) {
		return nil
	}
	return m.wait(ctx)
}
