package fetch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/internal/crc32c"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a store in memory. What happens to a request is up to act, by number.
type fake struct {
	data []byte
	act  func(n int, ctx context.Context, off int64) behaviour

	n, now, most atomic.Int64
	mu           sync.Mutex
	asked        []int64 // offsets
}

type behaviour struct {
	answer time.Duration // until the body can be read
	err    error
	step   time.Duration // between pieces of the body
	piece  int           // bytes at a time; 0 is all
	cut    int           // bytes before the body fails; 0 is none
	hang   int           // bytes before the body brings nothing any more; 0 is none
}

func (f *fake) open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	f.mu.Lock()
	f.asked = append(f.asked, off)
	f.mu.Unlock()
	b := behaviour{}
	if f.act != nil {
		b = f.act(int(f.n.Add(1))-1, ctx, off)
	}
	now := f.now.Add(1)
	for most := f.most.Load(); now > most && !f.most.CompareAndSwap(most, now); most = f.most.Load() {
	}
	if err := sleep(ctx, b.answer); err != nil {
		f.now.Add(-1)
		return nil, err
	}
	if b.err != nil {
		f.now.Add(-1)
		return nil, b.err
	}
	return &fakeBody{f: f, ctx: ctx, b: b, rest: f.data[off : off+n]}, nil
}

type fakeBody struct {
	f    *fake
	ctx  context.Context
	b    behaviour
	rest []byte
	sent int
}

func (b *fakeBody) Close() error {
	b.f.now.Add(-1)
	return nil
}

func (b *fakeBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	if b.b.hang > 0 && b.sent >= b.b.hang {
		<-b.ctx.Done()
	}
	if err := sleep(b.ctx, b.b.step); err != nil {
		return 0, err
	}
	if b.b.cut > 0 && b.sent >= b.b.cut {
		return 0, io.ErrUnexpectedEOF
	}
	n := len(b.rest)
	if b.b.piece > 0 {
		n = min(n, b.b.piece)
	}
	n = copy(p, b.rest[:n])
	b.rest, b.sent = b.rest[n:], b.sent+n
	return n, nil
}

func contents(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i>>8 ^ i*7)
	}
	return p
}

// A store beside this host is asked once per read, even if its first answer was slow: a
// busy host or the making of a connection may have taken that time.
func TestFewRequestsToANearStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		var c Counts
		if err := p.Do(t.Context(), &c, func(ctx context.Context) error { return sleep(ctx, 20*time.Millisecond) }); err != nil {
			t.Fatal(err)
		}
		f := &fake{data: contents(4 << 20)}
		for range 8 {
			read(t, p, f)
		}
		if n := len(f.asked); n != firstParts+7 {
			t.Errorf("%d requests for 8 reads, want %d for the first and one for each other", n, firstParts)
		}
	})
}

// A number of parts that brings nothing is undone, and the pauses between trials grow.
func TestTrialsAreUndone(t *testing.T) {
	p := parts{step: 1, now: 4}
	trials, last := 0, p.now
	for range 100 {
		p.round(1000)
		if p.now != last {
			trials++
		}
		last = p.now
	}
	// Down to one part, which loses nothing; then rarely up, and back.
	if p.now > 2 || trials > 16 {
		t.Errorf("%d parts after %d changes", p.now, trials)
	}
}

// read reads all of a fake and compares bytes and sum.
func read(t *testing.T, p *Pool, f *fake) *Counts {
	t.Helper()
	var c Counts
	var sum uint32
	got := make([]byte, len(f.data))
	if err := p.Read(t.Context(), Range{Open: f.open, Buf: got, Counts: &c, Sum: &sum}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, f.data) {
		t.Fatal("the bytes differ")
	}
	if want := crc32c.Sum(f.data); sum != want {
		t.Fatalf("the sum is %08x, want %08x", sum, want)
	}
	return &c
}

func half() float64 { return 0.5 }

func TestReadInParts(t *testing.T) {
	f := &fake{data: contents(1<<20 + 3)}
	c := read(t, New(Config{Parts: 4, MinPart: 1 << 10}), f)
	if c.Requests.Load() != 4 || c.Bytes.Load() != int64(len(f.data)) || c.Retries.Load()+c.Hedges.Load() != 0 {
		t.Errorf("%d requests, %d bytes", c.Requests.Load(), c.Bytes.Load())
	}
}

// A body that ends early is continued where it ended.
func TestCutBodiesAreContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(100_000), act: func(n int, _ context.Context, _ int64) behaviour {
			if n < 2 {
				return behaviour{piece: 1000, cut: 30_000}
			}
			return behaviour{}
		}}
		c := read(t, New(Config{Parts: 1, Jitter: half}), f)
		if len(f.asked) != 3 || f.asked[1] != 30_000 || f.asked[2] != 60_000 || c.Retries.Load() != 2 {
			t.Errorf("asked at %v, %d retries", f.asked, c.Retries.Load())
		}
		if c.Bytes.Load() != int64(len(f.data)) {
			t.Errorf("%d bytes from the store for %d", c.Bytes.Load(), len(f.data))
		}
	})
}

type refusal struct{ r Retry }

func (r refusal) Error() string { return "refused" }
func (r refusal) Retry() Retry  { return r.r }

func TestRefusalsAreFinal(t *testing.T) {
	f := &fake{data: contents(10), act: func(int, context.Context, int64) behaviour {
		return behaviour{err: refusal{Retry{Never: true}}}
	}}
	err := New(Config{}).Read(t.Context(), Range{Open: f.open, Buf: make([]byte, 10), Counts: new(Counts)})
	if !errors.Is(err, refusal{Retry{Never: true}}) || len(f.asked) != 1 {
		t.Errorf("error %v after %d requests", err, len(f.asked))
	}
}

// A store that always fails is given up, after waits that grow.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(10), act: func(int, context.Context, int64) behaviour { return behaviour{err: io.ErrClosedPipe} }}
		begin := time.Now()
		err := New(Config{Attempts: 4, Jitter: half}).Read(t.Context(), Range{Open: f.open, Buf: make([]byte, 10), Counts: new(Counts)})
		gave, ok := errors.AsType[*GaveUpError](err)
		if !ok || gave.Attempts != 4 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("error %v", err)
		}
		// Half of the jittered part of 100, 200 and 400 ms, and an eighth.
		if took := time.Since(begin); took != 393750*time.Microsecond {
			t.Errorf("it took %v", took)
		}
	})
}

// SlowDown stops all requests for the time that the store asked for, and halves how
// many are made at a time.
func TestSlowDownIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var early atomic.Int64
		f := &fake{data: contents(1 << 20)}
		f.act = func(n int, _ context.Context, _ int64) behaviour {
			if n < 8 {
				return behaviour{err: refusal{Retry{Slow: true, After: 3 * time.Second}}}
			}
			if time.Since(begin) < 3*time.Second {
				early.Add(1)
			}
			return behaviour{answer: 10 * time.Millisecond}
		}
		p := New(Config{Parts: 8, MinPart: 1 << 10, Connections: 8, Jitter: half})
		f.most.Store(0)
		read(t, p, f)
		if early.Load() != 0 {
			t.Errorf("%d requests during the pause", early.Load())
		}
		if limit := p.flights.limit; limit > 7 {
			t.Errorf("%v requests may be in flight after 8 answers of SlowDown", limit)
		}
	})
}

// Clients that are told to wait for the same time do not return together.
func TestNoHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 50
		returned := map[time.Duration]int{}
		begin := time.Now()
		for range clients {
			f := &fake{data: contents(10)}
			var took time.Duration
			f.act = func(n int, _ context.Context, _ int64) behaviour {
				if took = time.Since(begin); n == 0 {
					begin = time.Now()
					return behaviour{err: refusal{Retry{Slow: true, After: 3 * time.Second}}}
				}
				return behaviour{}
			}
			read(t, New(Config{}), f)
			if returned[took]++; took < 3*time.Second {
				t.Errorf("a client returned after %v", took)
			}
		}
		if len(returned) < clients/2 {
			t.Errorf("%d clients returned at %d times", clients, len(returned))
		}
	})
}

// A request that gets no answer is ended and made again; so is every request but reads.
func TestRequestsWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, n := New(Config{}), 0
		var c Counts
		err := p.Do(t.Context(), &c, func(ctx context.Context) error {
			if n++; n == 1 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		if err != nil || n != 2 || c.Retries.Load() != 1 {
			t.Errorf("%d requests: %v", n, err)
		}
		p = New(Config{Attempts: 2, Jitter: half})
		for name, c := range map[string]struct {
			do   func(context.Context, *Counts, func(context.Context) error) error
			most time.Duration
		}{"do": {p.Do, 11 * time.Minute}, "ask": {p.Ask, 2*time.Minute + time.Second}} {
			begin := time.Now()
			err = c.do(t.Context(), new(Counts), func(ctx context.Context) error { return sleep(ctx, time.Hour) })
			if took := time.Since(begin); !errors.Is(err, ErrStalled) || took > c.most {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
		}
	})
}

// There are never more requests in flight than connections.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(1 << 20), act: func(int, context.Context, int64) behaviour { return behaviour{answer: time.Millisecond} }}
		p := New(Config{Parts: 16, MinPart: 1 << 10, Connections: 3})
		var g sync.WaitGroup
		for range 4 {
			g.Go(func() { read(t, p, f) })
		}
		g.Wait()
		if f.most.Load() != 3 || f.n.Load() != 64 {
			t.Errorf("%d requests in flight of %d, want 3 of 64", f.most.Load(), f.n.Load())
		}
	})
}

// A request that is given up while it waits, for a place or for the end of a pause, does
// not take the place of the next one.
func TestWaitsThatAreGivenUp(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := flights{limit: 1, most: 1}
			if err := f.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, giveUp := context.WithCancel(t.Context())
			given, got := make(chan error, 1), make(chan error, 1)
			go func() { given <- f.acquire(ctx) }()
			synctest.Wait()
			next, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			go func() { got <- f.acquire(next) }()
			synctest.Wait()
			if pause == 0 {
				giveUp()
				synctest.Wait()
				f.release(true)
			} else { // the first has its place, and waits for the end of the pause
				f.slowDown(time.Now().Add(pause))
				f.release(true)
				synctest.Wait()
				giveUp()
			}
			if err := <-given; !errors.Is(err, context.Canceled) {
				t.Errorf("pause %v: the request that was given up: %v", pause, err)
			}
			if err := <-got; err != nil {
				t.Errorf("pause %v: the next request: %v", pause, err)
			}
		})
	}
}

// A request without an answer is raced by a second one, which fills the memory.
func TestSlowAnswersAreHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(100_000)}
		p := New(Config{Parts: 1, Jitter: half})
		for range 20 { // it answers within 10 ms
			f.act = func(int, context.Context, int64) behaviour { return behaviour{answer: 10 * time.Millisecond} }
			read(t, p, f)
		}
		f.n.Store(0)
		f.act = func(n int, _ context.Context, _ int64) behaviour {
			if n == 0 {
				return behaviour{answer: time.Hour}
			}
			return behaviour{answer: 10 * time.Millisecond}
		}
		begin := time.Now()
		c := read(t, p, f)
		if took := time.Since(begin); took > 100*time.Millisecond || c.Hedges.Load() != 1 || c.Retries.Load() != 0 {
			t.Errorf("%v, %d hedges, %d retries", took, c.Hedges.Load(), c.Retries.Load())
		}
	})
}

// A body that stops in the middle is finished by a hedge for the rest alone.
func TestSlowBodiesAreHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(100_000)}
		f.act = func(n int, _ context.Context, _ int64) behaviour {
			if n == 0 {
				return behaviour{answer: time.Millisecond, piece: 1000, hang: 70_000}
			}
			return behaviour{answer: time.Millisecond}
		}
		c := read(t, New(Config{Parts: 1, Jitter: half}), f)
		if c.Hedges.Load() != 1 || len(f.asked) != 2 || f.asked[1] != 70_000 {
			t.Errorf("%d hedges, asked at %v", c.Hedges.Load(), f.asked)
		}
	})
}

// A body that trickles is slow, too; the hedge begins where it was when the hedge was
// made, and fills what trickled in meanwhile once more.
func TestHedgeOverwritesATrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(100_000)}
		p := New(Config{Parts: 1, Jitter: half})
		f.act = func(int, context.Context, int64) behaviour {
			return behaviour{answer: time.Millisecond, piece: 10_000, step: time.Millisecond}
		}
		for range 20 {
			read(t, p, f)
		}
		f.n.Store(0)
		f.act = func(n int, _ context.Context, _ int64) behaviour {
			if n == 0 {
				return behaviour{answer: time.Millisecond, piece: 7, step: 10 * time.Millisecond}
			}
			return behaviour{answer: 300 * time.Millisecond}
		}
		c := read(t, p, f)
		if c.Hedges.Load() != 1 || c.Bytes.Load() <= 100_000 {
			t.Errorf("%d hedges, %d bytes", c.Hedges.Load(), c.Bytes.Load())
		}
	})
}

// A hedge that comes too late is dropped; the bytes count once.
func TestLateHedgesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(100_000)}
		f.act = func(n int, _ context.Context, _ int64) behaviour {
			if n == 0 {
				return behaviour{answer: 1500 * time.Millisecond}
			}
			return behaviour{answer: time.Hour}
		}
		c := read(t, New(Config{Parts: 1}), f)
		if c.Hedges.Load() != 1 || c.Bytes.Load() != 100_000 {
			t.Errorf("%d hedges, %d bytes", c.Hedges.Load(), c.Bytes.Load())
		}
		synctest.Wait()
		if f.now.Load() != 0 {
			t.Errorf("%d requests left", f.now.Load())
		}
	})
}

// A store that is slow everywhere is not asked twice for everything.
func TestHedgesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(1000)}
		p := New(Config{Parts: 1, Jitter: half})
		var hedges int64
		for i := range 200 {
			slow := i%2 == 0
			var first atomic.Bool
			f.act = func(int, context.Context, int64) behaviour {
				if slow && !first.Swap(true) {
					return behaviour{answer: time.Minute}
				}
				return behaviour{answer: time.Millisecond}
			}
			hedges += read(t, p, f).Hedges.Load()
		}
		if hedges == 0 || hedges > firstHedges+200*hedgeShare+1 {
			t.Errorf("%d hedges for 200 reads", hedges)
		}
	})
}

// Without hedges to spend, a request that has stalled is ended and made again.
func TestStalledRequestsAreMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(100_000)}
		f.act = func(n int, _ context.Context, _ int64) behaviour {
			if n == 0 {
				return behaviour{piece: 1000, hang: 50_000}
			}
			return behaviour{}
		}
		p := New(Config{Parts: 1, Stall: 5 * time.Second, Jitter: half})
		p.hedges = 0
		begin := time.Now()
		c := read(t, p, f)
		if c.Retries.Load() != 1 || c.Hedges.Load() != 0 || f.asked[1] != 50_000 || time.Since(begin) < 5*time.Second {
			t.Errorf("%d retries, %d hedges, asked at %v, %v", c.Retries.Load(), c.Hedges.Load(), f.asked, time.Since(begin))
		}
	})
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(1 << 20)}
		p := New(Config{Parts: 4, MinPart: 1 << 10, Rate: 1 << 20})
		begin := time.Now()
		for range 4 {
			read(t, p, f)
		}
		if took := time.Since(begin); took < 3500*time.Millisecond || took > 4*time.Second {
			t.Errorf("4 MiB at 1 MiB/s took %v", took)
		}
	})
}

// An end of the context ends waits and requests, and leaves nothing behind.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{data: contents(1 << 20), act: func(int, context.Context, int64) behaviour { return behaviour{hang: 1, piece: 1} }}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		err := New(Config{Connections: 2, Parts: 8, MinPart: 1 << 10}).Read(ctx, Range{Open: f.open, Buf: make([]byte, 1<<20), Counts: new(Counts)})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// The number of parts grows where more requests bring more bytes, and not where they
// bring none.
func TestPartsAreLearned(t *testing.T) {
	for _, c := range []struct {
		name       string
		perRequest bool // bytes per second of each request, or of all together
		atLeast    int
		atMost     int
	}{
		{"a rate per request", true, 8, 16},
		{"a rate in all", false, 1, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{})
				buf := make([]byte, 8<<20)
				const rate = 100 << 20
				turn := make(chan struct{}, 1)
				open := func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
					d := time.Duration(float64(n) / rate * float64(time.Second))
					if c.perRequest {
						return io.NopCloser(io.LimitReader(zeros{}, n)), sleep(ctx, d)
					}
					turn <- struct{}{}
					defer func() { <-turn }()
					return io.NopCloser(io.LimitReader(zeros{}, n)), sleep(context.Background(), d)
				}
				for range 100 {
					if err := p.Read(t.Context(), Range{Open: open, Buf: buf, Counts: new(Counts)}); err != nil {
						t.Fatal(err)
					}
				}
				if p.parts.now < c.atLeast || p.parts.now > c.atMost {
					t.Errorf("%d parts, want %d to %d", p.parts.now, c.atLeast, c.atMost)
				}
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
