package fetch

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/internal/limit"
)

// Config limits a Pool. Zero fields are defaults.
type Config struct {
	Connections int           // requests in flight, at most (default 64)
	Rate        int64         // bytes per second, at most; 0 is no limit
	Attempts    int           // requests for the same bytes, at most (default 6)
	Stall       time.Duration // a read without a byte for this long is made again (default 20 s)
	Answer      time.Duration // another request that takes this long is made again (default 5 min; one that asks: 3 Stall)
	MinPart     int           // the smallest part that a read is cut into (default 512 KiB)
	Parts       int           // parts of a read; 0 is learned
	// Jitter returns a number in [0, 1) (default random). Backoffs are multiplied by it,
	// so that clients of a store that failed do not return together.
	Jitter func() float64
}

func (c Config) withDefaults() Config {
	set(&c.Connections, 64)
	set(&c.Attempts, 6)
	set(&c.Stall, 20*time.Second)
	set(&c.Answer, 5*time.Minute) // a store may copy all parts of an upload to complete it
	set(&c.MinPart, 512<<10)
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	return c
}

func set[T int | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// An Opener asks for n bytes from off. The body must have exactly these bytes; it is
// closed when it is no longer needed. Ending ctx ends the body, too.
type Opener func(ctx context.Context, off, n int64) (io.ReadCloser, error)

// A Failure is an error of a request that says whether to make it again. A request
// that failed with any other error, such as a connection that was cut, is made again.
type Failure interface {
	error
	Retry() Retry
}

// A Retry says how to make a request again.
type Retry struct {
	Never bool
	Slow  bool          // the store has too much to do
	After time.Duration // not before, if the store said so
}

// Counts are what reads did, until they are taken.
type Counts struct {
	Bytes    atomic.Int64 // that the store sent, with those that were thrown away
	Requests atomic.Int64
	Retries  atomic.Int64
	Hedges   atomic.Int64
}

// A Pool is what all reads from one store share.
type Pool struct {
	cfg     Config
	flights flights
	latency latency
	parts   parts

	mu     sync.Mutex
	hedges float64 // that may be made
	rate   *limit.Rate
	dialed atomic.Int64
}

// New makes a pool.
func New(cfg Config) *Pool {
	p := &Pool{cfg: cfg.withDefaults(), hedges: firstHedges, rate: limit.New(cfg.Rate)}
	p.flights.limit, p.flights.most = float64(p.cfg.Connections), float64(p.cfg.Connections)
	p.parts = parts{fixed: p.cfg.Parts, step: 1, calm: 1} // connections are made in the first round
	return p
}

// Connected counts a connection that was made. TakeConnections returns the count
// since the last call.
func (p *Pool) Connected() { p.dialed.Add(1) }

// TakeConnections returns how many connections were made since the last call.
func (p *Pool) TakeConnections() int64 { return p.dialed.Swap(0) }

// Connections is the most requests in flight.
func (p *Pool) Connections() int { return p.cfg.Connections }

// A Range is what a read fills.
type Range struct {
	Open   Opener
	Buf    []byte
	Off    int64
	Counts *Counts
	InOne  bool    // by one request
	Sum    *uint32 // receives the CRC-32C of the bytes; nil if none is wanted
}

// Read fills r.Buf with the bytes from r.Off. After an error it has undefined contents.
func (p *Pool) Read(ctx context.Context, r Range) error {
	if r.InOne {
		return p.readParts(ctx, &r, 1)
	}
	k := p.parts.begin(len(r.Buf), p.cfg.MinPart, p.latency.fastest())
	err := p.readParts(ctx, &r, k)
	p.parts.end(len(r.Buf), err == nil)
	return err
}

func (p *Pool) readParts(ctx context.Context, r *Range, k int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A goroutine even for one part: the caller may be locked to a thread, and each
	// wait for the network would switch threads.
	results := make(chan error, k)
	size := (len(r.Buf) + k - 1) / k
	var parts []*part
	for at := 0; at < len(r.Buf); at += size {
		pt := &part{pool: p, open: r.Open, counts: r.Counts, buf: r.Buf[at:min(at+size, len(r.Buf))], off: r.Off + int64(at), summed: r.Sum != nil}
		parts = append(parts, pt)
		go func() { results <- pt.read(ctx) }()
	}
	var failed error
	for range parts {
		if err := <-results; err != nil && failed == nil {
			failed = err
			cancel(err) // the other parts are of no use
		}
	}
	if r.Sum != nil {
		*r.Sum = 0
		for _, pt := range parts {
			*r.Sum = crc32c.Join(*r.Sum, pt.sum, int64(len(pt.buf)))
		}
	}
	return failed
}

// Do runs a request that is not a read of a part, with the same limits and repeats. The
// context of the request ends when it takes too long.
func (p *Pool) Do(ctx context.Context, c *Counts, request func(context.Context) error) error {
	return p.do(ctx, c, p.cfg.Answer, request)
}

// Ask is Do for a request that changes nothing and has a small answer, which a store need
// not take minutes for.
func (p *Pool) Ask(ctx context.Context, c *Counts, request func(context.Context) error) error {
	return p.do(ctx, c, min(3*p.cfg.Stall, p.cfg.Answer), request)
}

func (p *Pool) do(ctx context.Context, c *Counts, limit time.Duration, request func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		if err := p.flights.acquire(ctx); err != nil {
			return err
		}
		c.Requests.Add(1)
		begin := time.Now()
		rctx, cancel := context.WithTimeoutCause(ctx, limit, ErrStalled)
		err := request(rctx)
		cancel()
		p.flights.release(err == nil)
		if err == nil {
			p.latency.answeredOther(time.Since(begin))
			return nil
		}
		if err := p.again(ctx, attempt, err, c); err != nil {
			return err
		}
	}
}

// again waits before a request is made again, or says why it is not.
func (p *Pool) again(ctx context.Context, attempt int, err error, c *Counts) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var r Retry
	if f, ok := asFailure(err); ok {
		r = f.Retry()
	}
	if r.Never {
		return err
	}
	if attempt >= p.cfg.Attempts {
		return &GaveUpError{attempt, err}
	}
	wait := r.After + p.backoff(attempt) // clients that got the same After return one by one
	if r.Slow {
		p.flights.slowDown(time.Now().Add(wait))
	}
	c.Retries.Add(1)
	return sleep(ctx, wait)
}

const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 10 * time.Second
)

// backoff is a random time that doubles with each attempt. It is at least an eighth
// of the longest, because a store that fails at once would be asked at once.
func (p *Pool) backoff(attempt int) time.Duration {
	longest := min(firstBackoff<<min(attempt, 20), maxBackoff)
	return longest/8 + time.Duration(float64(longest-longest/8)*p.cfg.Jitter())
}

// Pace waits until the rate limit allows n bytes.
func (p *Pool) Pace(ctx context.Context, n int) error { return p.rate.Wait(ctx, int64(n)) }

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	return limit.Sleep(ctx, d)
}
