package fetch

import (
	"context"
	"sync"
	"time"
)

// A watcher looks at a request from time to time, beside the goroutine that waits
// for it.
type watcher struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// Stop ends the looking. A look that is in progress ends first.
func (w *watcher) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// every calls look after each period, until it returns 0 or the watcher stops; look
// returns the next period.
func every(period time.Duration, look func() time.Duration) *watcher {
	w := &watcher{}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(period, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.stopped {
			return
		}
		if next := look(); next > 0 {
			w.timer.Reset(next)
		}
	})
	return w
}

// watch makes a hedge for a request that is slow, and ends one that has stalled.
func (p *part) watch(ctx context.Context) *watcher {
	period := p.pool.latency.slow()
	last, still := p.got.Load(), time.Duration(0)
	return every(period, func() time.Duration {
		got := p.got.Load()
		moved := got - last
		last = got
		if still += period; moved > 0 {
			still = 0
		}
		if still >= p.pool.cfg.Stall {
			p.stop(ErrStalled)
			return 0
		}
		if float64(moved) <= float64(p.pool.latency.expects(period))*crawl {
			p.tryHedge(ctx, got)
		}
		return period
	})
}

// watchStall ends the body of a hedge that has stalled.
func (p *part) watchStall(cancel context.CancelCauseFunc) *watcher {
	last := p.got.Load()
	return every(p.pool.cfg.Stall, func() time.Duration {
		got := p.got.Load()
		if got == last {
			cancel(ErrStalled)
			return 0
		}
		last = got
		return p.pool.cfg.Stall
	})
}

func (p *part) stop(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel(why)
}

// tryHedge makes a second request for the rest, if there is none, if hedges are left
// and if there is room.
func (p *part) tryHedge(ctx context.Context, from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hedge != nil || p.ended || from == int64(len(p.buf)) || !p.pool.flights.try() {
		return
	}
	if !p.pool.spendHedge() {
		p.pool.flights.release(false)
		return
	}
	hctx, cancel := context.WithCancelCause(ctx)
	h := &hedge{from: from, cancel: cancel}
	p.hedge = h
	p.counts.Hedges.Add(1)
	go p.runHedge(hctx, h)
}

// runHedge waits for the answer to a hedge. If the first request has not moved much by
// then, the hedge takes over.
func (p *part) runHedge(ctx context.Context, h *hedge) {
	body, err := p.request(ctx, h.from)
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := int64(len(p.buf)) - h.from
	if err == nil && p.hedge == h && p.got.Load()-h.from <= rest/4 {
		h.body = body
		p.cancel(errTakenOver)
		return
	}
	if err == nil {
		body.Close()
	}
	if p.hedge == h {
		p.hedge = nil
	}
	h.cancel(nil)
	p.pool.flights.release(false)
}
