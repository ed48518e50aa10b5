package tensor

import (
	"context"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// A window is a streaming buffer: device memory that is reused for one tensor after
// the other.
type window struct {
	span gpu.Span

	mu    sync.Mutex
	freed sync.Cond
	used  []place // by offset
}

type place struct{ from, to uint64 }

func newWindow(span gpu.Span) *window {
	w := &window{span: span}
	w.freed.L = &w.mu
	return w
}

// take waits for n bytes, which must not exceed the window.
func (w *window) take(ctx context.Context, n uint64) (gpu.Span, error) {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.freed.Broadcast()
	})
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return gpu.Span{}, err
		}
		if from, i, ok := w.gap(n); ok {
			w.used = slices.Insert(w.used, i, place{from, from + n})
			return w.span.Slice(from, n), nil
		}
		w.freed.Wait()
	}
}

// gap finds the first free range of n bytes, and its index in used.
func (w *window) gap(n uint64) (from uint64, i int, ok bool) {
	for i, p := range w.used {
		if from+n <= p.from {
			return from, i, true
		}
		from = alignUp(p.to, tensorAlign)
	}
	return from, len(w.used), from+n <= w.span.Len
}

// free frees what take returned.
func (w *window) free(s gpu.Span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := s.Off - w.span.Off
	w.used = slices.DeleteFunc(w.used, func(p place) bool { return p.from == from })
	w.freed.Broadcast()
}
