package rdmabench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

// Times are the latencies of requests, one at a time.
type Times struct {
	Size       uint32
	Iterations int
	// Typical is the median; P99 and P999 are as long as 99 % and 99.9 % of them, or longer.
	Min, Max, Typical, Average, Deviation, P99, P999 time.Duration
}

// latencyDepth is how many sends of a ping-pong may wait for their acknowledgement.
const latencyDepth = 16

// Latency measures READs, or SENDs that the server answers, of which it takes half the time
// of a round trip. The client has the result; the server's is empty. The depth does not
// matter.
func Latency(ctx context.Context, conn net.Conn, client bool, dev rdma.Device, cfg Config) (t Times, err error) {
	cfg.Depth = latencyDepth
	if cfg.Op == rdma.OpWrite {
		return t, errors.New("latency of WRITE is not measured: perftest watches the memory for it (fix: READ or SEND)")
	}
	err = run(ctx, conn, client, dev, cfg, func(e *end, s *session) error {
		took, err := e.oneByOne(ctx, s)
		if err == nil && client {
			t = times(cfg.Size, took)
		}
		return err
	})
	return t, err
}

// oneByOne makes requests, or answers them, and returns the client's times.
func (e *end) oneByOne(ctx context.Context, s *session) ([]time.Duration, error) {
	p := &pingPong{end: e, sends: e.requests(s.peer), receives: e.receives()}
	if e.cfg.Op == rdma.OpSend {
		if err := p.receives.post(); err != nil {
			return nil, err
		}
	}
	if err := s.barrier("wait until the peer is ready to start"); err != nil {
		return nil, err
	}
	switch {
	case e.cfg.Op == rdma.OpRead && s.client:
		return e.repeat(2, func() error { return e.read(ctx, p.sends) })
	case e.cfg.Op == rdma.OpRead:
		return nil, nil
	case s.client:
		return e.repeat(1, func() error {
			if err := p.send(ctx); err != nil {
				return err
			}
			return p.receive(ctx)
		})
	}
	watched, over := s.watch(ctx)
	_, err := e.repeat(1, func() error {
		if err := p.receive(watched); err != nil {
			return err
		}
		return p.send(watched)
	})
	return nil, over(err)
}

// repeat measures every request. ways is 1 if it is half of what was done.
func (e *end) repeat(ways time.Duration, one func() error) ([]time.Duration, error) {
	took := make([]time.Duration, 0, e.cfg.Iterations)
	for range e.cfg.Iterations {
		start := time.Now()
		if err := one(); err != nil {
			return nil, fmt.Errorf("after %d of %d: %w", len(took), e.cfg.Iterations, err)
		}
		took = append(took, time.Since(start)*ways/2)
	}
	return took, nil
}

func (e *end) read(ctx context.Context, f *flow) error {
	if err := f.post(); err != nil {
		return err
	}
	_, err := rdma.One(ctx, e.CQ)
	return err
}

// A pingPong sends and receives messages on one completion queue.
type pingPong struct {
	*end
	sends, receives *flow
	waiting         int // sends without a completion
	arrived         int // messages not received yet
}

func (p *pingPong) send(ctx context.Context) error {
	for p.waiting == latencyDepth/2 { // the rest of the queue is for messages
		if err := p.next(ctx); err != nil {
			return err
		}
	}
	p.waiting++
	return p.sends.post()
}

// receive waits for a message, after which the next may come.
func (p *pingPong) receive(ctx context.Context) error {
	for p.arrived == 0 {
		if err := p.next(ctx); err != nil {
			return err
		}
	}
	p.arrived--
	return p.receives.post()
}

// next waits for a completion.
func (p *pingPong) next(ctx context.Context) error {
	wc, err := rdma.One(ctx, p.CQ)
	if err != nil {
		return err
	}
	if wc.Op == rdma.WCRecv {
		p.arrived++
	} else {
		p.waiting--
	}
	return nil
}

// times computes what is printed.
func times(size uint32, took []time.Duration) Times {
	slices.Sort(took)
	n := len(took)
	at := func(share float64) time.Duration { return took[min(n-1, int(math.Ceil(share*float64(n))))] }
	t := Times{Size: size, Iterations: n, Min: took[0], Max: took[n-1], Typical: took[n/2], P99: at(0.99), P999: at(0.999)}
	for _, d := range took {
		t.Average += d
	}
	t.Average /= time.Duration(n)
	var squares float64
	for _, d := range took {
		squares += float64(d-t.Average) * float64(d-t.Average)
	}
	t.Deviation = time.Duration(math.Sqrt(squares / float64(n)))
	return t
}

// LatencyHeader is the first line of perftest's table of latencies.
const LatencyHeader = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "

// String is a line of that table.
func (t Times) String() string {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return fmt.Sprintf(" %-7d %-10d  %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f",
		t.Size, t.Iterations, us(t.Min), us(t.Max), us(t.Typical), us(t.Average), us(t.Deviation), us(t.P99), us(t.P999))
}
