package limit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// However many transfers share a rate, together they have it.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(1000)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 5 {
					if err := r.Wait(t.Context(), 100); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		// The last of 50 requests may begin when 49 are through.
		if took := time.Since(start); took != 4900*time.Millisecond {
			t.Errorf("5000 bytes at 1000 a second took %v", took)
		}
	})
}

func TestNoBurstAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(1000)
		if err := r.Wait(t.Context(), 1); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		start := time.Now()
		for range 3 {
			if err := r.Wait(t.Context(), 1000); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("3000 bytes took %v", took)
		}
	})
}

func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(1)
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := r.Wait(ctx, 1<<40); err != nil {
			t.Error(err)
		}
		stopped := errors.New("stopped")
		time.AfterFunc(time.Second, func() { cancel(stopped) })
		if err := r.Wait(ctx, 1); !errors.Is(err, stopped) {
			t.Errorf("a wait that was stopped: %v", err)
		}
	})
}

func TestNone(t *testing.T) {
	if r := New(0); r != nil || r.Wait(t.Context(), 1<<62) != nil || r.Largest(5<<30, 4096) != 5<<30 {
		t.Errorf("no rate limits: %+v", r)
	}
}

func TestLargest(t *testing.T) {
	for _, c := range []struct{ rate, n, want int64 }{
		{100 << 20, 32 << 20, 12<<20 + 512<<10},
		{1, 32 << 20, 64 << 10},
		{1 << 40, 32 << 20, 32 << 20},
		{1, 100, 100},
	} {
		if got := New(c.rate).Largest(c.n, 64<<10); got != c.want {
			t.Errorf("%d bytes at %d a second in requests of %d, want %d", c.n, c.rate, got, c.want)
		}
	}
}
