package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/internal/crc32c"
)

const (
	// firstHedges may be made before anything is known of a store. Each request that
	// ends earns hedgeShare of another, up to maxHedges: a store that is slow
	// everywhere gets 5 % more requests, not twice as many.
	firstHedges = 4
	hedgeShare  = 0.05
	maxHedges   = 8
	// crawl is the share of the usual rate below which a body is slow.
	crawl = 1.0 / 8
	// readSize is how much of a body is read at a time: it is still in the core's cache
	// when it is summed, which takes half the time then.
	readSize = 256 << 10
)

// A part is a range that one request fills, or several one after the other.
type part struct {
	pool   *Pool
	open   Opener
	counts *Counts
	buf    []byte
	off    int64
	got    atomic.Int64 // bytes in place, from the start
	summed bool         // sum is wanted
	sum    uint32       // CRC-32C of the bytes in place

	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the request that is read
	hedge  *hedge                  // in flight, or ready to take over
	ended  bool
}

// A hedge is a second request for the rest of a part.
type hedge struct {
	from   int64 // where it begins in the part
	cancel context.CancelCauseFunc
	body   io.ReadCloser // when it may take over
}

// errTakenOver ends a request that was slower than its hedge.
var errTakenOver = errors.New("a second request was faster")

// read fills the part.
func (p *part) read(ctx context.Context) error {
	defer p.end()
	tries := 0
	for {
		before := p.got.Load()
		err := p.attempt(ctx)
		if p.got.Load() == int64(len(p.buf)) {
			return nil
		}
		if p.got.Load()-before > int64(len(p.buf)/8) {
			tries = 0 // it moves
		}
		tries++
		if err := p.pool.again(ctx, tries, err, p.counts); err != nil {
			return err
		}
	}
}

// attempt makes a request for the rest and reads its body, or that of its hedge.
func (p *part) attempt(ctx context.Context) error {
	rest := len(p.buf) - int(p.got.Load())
	if err := p.pool.Pace(ctx, rest); err != nil {
		return err
	}
	if err := p.pool.flights.acquire(ctx); err != nil {
		return err
	}
	rctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	p.cancel = cancel
	p.mu.Unlock()
	w := p.watch(ctx)
	body, err := p.request(rctx, p.got.Load())
	if err == nil {
		err = p.drain(body)
	}
	if cause := context.Cause(rctx); err != nil && cause != nil {
		err = cause
	}
	w.Stop()
	cancel(nil)
	p.pool.flights.release(err == nil)
	h := p.dropHedge()
	if err == nil {
		p.discard(h)
	}
	if err == nil || h == nil {
		return err
	}
	// The request is over: nothing else writes to the part.
	p.got.Store(h.from)
	if p.summed {
		p.sum = crc32c.Sum(p.buf[:h.from])
	}
	p.mu.Lock()
	p.cancel = h.cancel
	p.mu.Unlock()
	w = p.watchStall(h.cancel)
	err = p.drain(h.body)
	w.Stop()
	h.cancel(nil)
	p.pool.flights.release(err == nil)
	return err
}

// request asks for the rest of the part from a place in it.
func (p *part) request(ctx context.Context, from int64) (io.ReadCloser, error) {
	p.counts.Requests.Add(1)
	begin := time.Now()
	body, err := p.open(ctx, p.off+from, int64(len(p.buf))-from)
	if err == nil {
		p.pool.latency.answered(time.Since(begin))
	}
	return body, err
}

// drain reads a body into the rest of the part.
func (p *part) drain(body io.ReadCloser) error {
	defer body.Close()
	begin, start := time.Now(), p.got.Load()
	for at := start; at < int64(len(p.buf)); {
		n, err := body.Read(p.buf[at:min(at+readSize, int64(len(p.buf)))])
		if p.summed {
			p.sum = crc32c.Update(p.sum, p.buf[at:at+int64(n)])
		}
		at += int64(n)
		p.counts.Bytes.Add(int64(n))
		p.got.Store(at)
		if at == int64(len(p.buf)) {
			break
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("%d of %d bytes at %d arrived: %w", at-start, int64(len(p.buf))-start, p.off+start, err)
		}
	}
	p.pool.latency.moved(len(p.buf)-int(start), time.Since(begin))
	// The end of the body must be seen, or the connection is not used again.
	_, _ = body.Read(make([]byte, 1))
	return nil
}

// end drops a hedge that is of no use any more.
func (p *part) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.discard(p.dropHedge())
	p.pool.earnHedge()
}

// discard ends a hedge that came too late.
func (p *part) discard(h *hedge) {
	if h == nil {
		return
	}
	h.cancel(nil)
	h.body.Close()
	p.pool.flights.release(true)
}

// dropHedge cancels a hedge that has no answer yet, and returns one that has.
func (p *part) dropHedge() *hedge {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hedge
	p.hedge = nil
	if h != nil && h.body == nil {
		h.cancel(nil) // its goroutine finds out that it is not p.hedge any more
		return nil
	}
	return h
}

func (p *Pool) earnHedge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hedges = min(p.hedges+hedgeShare, maxHedges)
}

func (p *Pool) spendHedge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hedges < 1 {
		return false
	}
	p.hedges--
	return true
}
