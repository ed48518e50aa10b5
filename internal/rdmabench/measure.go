package rdmabench

import (
	"context"
	"fmt"
	"time"

	"github.com/culvert-io/culvert/internal/abi/perftest"
	"github.com/culvert-io/culvert/rdma"
)

// A flow keeps requests posted until all of them have completed.
type flow struct {
	cfg    Config
	cq     rdma.CQ
	post   func() error
	posted int
}

// requests is the client's flow.
func (e *end) requests(peer perftest.Endpoint) *flow {
	wr := [1]rdma.SendWR{{
		Op: e.cfg.Op, Flags: rdma.Signaled, SGE: e.SGE(0, int(e.cfg.Size)), RemoteAddr: peer.VAddr, RKey: peer.Rkey,
	}}
	return &flow{cfg: e.cfg, cq: e.CQ, post: func() error {
		_, err := e.QP.PostSend(wr[:])
		return err
	}}
}

// receives is the flow of a server that is sent messages.
func (e *end) receives() *flow {
	wr := [1]rdma.RecvWR{{SGE: e.SGE(0, int(e.cfg.Size))}}
	return &flow{cfg: e.cfg, cq: e.CQ, post: func() error {
		_, err := e.QP.PostRecv(wr[:])
		return err
	}}
}

// fill posts as many requests as may be in flight.
func (f *flow) fill(done int) error {
	for ; f.posted < f.cfg.Iterations && f.posted-done < f.cfg.Depth; f.posted++ {
		if err := f.post(); err != nil {
			return err
		}
	}
	return nil
}

// measure waits for all requests.
func (f *flow) measure(ctx context.Context) (perftest.Report, error) {
	times := newWindow(f.cfg.Depth)
	var wcs [16]rdma.WC
	start := time.Now()
	for done := 0; done < f.cfg.Iterations; {
		if err := f.fill(done); err != nil {
			return perftest.Report{}, err
		}
		n, err := rdma.Await(ctx, f.cq, wcs[:])
		if err != nil {
			return perftest.Report{}, err
		}
		now := time.Since(start)
		for _, wc := range wcs[:n] {
			if err := wc.Err(); err != nil {
				return perftest.Report{}, fmt.Errorf("after %d of %d: %w", done, f.cfg.Iterations, err)
			}
			times.add(now)
			done++
		}
	}
	return report(f.cfg, time.Since(start), times.shortest), nil
}

// A window has the times of the last completions, and the shortest time that as many
// took.
type window struct {
	times    []time.Duration
	n        int
	shortest time.Duration // 0: not known
}

func newWindow(n int) *window { return &window{times: make([]time.Duration, n)} }

func (w *window) add(now time.Duration) {
	at := &w.times[w.n%len(w.times)]
	if took := now - *at; w.n >= len(w.times) && took > 0 && (w.shortest == 0 || took < w.shortest) {
		w.shortest = took
	}
	*at = now
	w.n++
}

// report computes the rates. The peak is that of the fastest row of requests as long as
// the queue is deep.
func report(cfg Config, took, shortest time.Duration) perftest.Report {
	const mib = 1 << 20
	messages := float64(cfg.Iterations) / max(took, 1).Seconds()
	r := perftest.Report{
		Size: uint64(cfg.Size), Iterations: uint64(cfg.Iterations), Average: messages * float64(cfg.Size) / mib, Messages: messages / 1e6,
	}
	r.Peak = r.Average
	if shortest > 0 {
		r.Peak = max(r.Peak, float64(cfg.Depth)/shortest.Seconds()*float64(cfg.Size)/mib)
	}
	return r
}

// Header and Row are perftest's table.
const Header = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"

// Row is a line of the table; MB are MiB there.
func Row(r perftest.Report) string {
	return fmt.Sprintf(" %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f", r.Size, r.Iterations, r.Peak, r.Average, r.Messages)
}
