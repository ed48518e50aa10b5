package rdmatest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/rdma"
)

// remoteAccess: a request outside of what the key allows is a remote access error, changes
// nothing, and fails both queue pairs.
func remoteAccess(t *testing.T, b Backend) {
	for name, c := range map[string]struct {
		access rdma.Access
		wr     rdma.SendWR
		n      uint32
	}{
		"one byte behind":      {0, rdma.SendWR{Op: rdma.OpWrite, RemoteAddr: size - 99}, 100},
		"large":                {0, rdma.SendWR{Op: rdma.OpWrite, RemoteAddr: 1}, size},
		"before":               {0, rdma.SendWR{Op: rdma.OpWrite, RemoteAddr: 1<<64 - 1}, 100},
		"wraps":                {0, rdma.SendWR{Op: rdma.OpWrite, RemoteAddr: 1<<63 + 1<<62}, 100},
		"unknown key":          {0, rdma.SendWR{Op: rdma.OpWrite, RKey: 0xdeadbeef}, 100},
		"read behind":          {0, rdma.SendWR{Op: rdma.OpRead, RemoteAddr: size}, 1},
		"read without right":   {rdma.LocalWrite | rdma.RemoteWrite, rdma.SendWR{Op: rdma.OpRead}, 100},
		"write without right":  {rdma.LocalWrite | rdma.RemoteRead, rdma.SendWR{Op: rdma.OpWrite}, 100},
		"atomic without right": {rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite, rdma.SendWR{Op: rdma.OpFetchAdd, CompareAdd: 1}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			p := b.Connect(t, setup{access: c.access, receives: 1})
			fill(p.A.Buf, 9)
			fill(p.B.Buf, 10)
			was := slices.Clone(p.B.Buf)
			wr := c.wr
			wr.ID, wr.SGE = 1, []rdma.SGE{p.A.at(0, c.n)}
			p.A.post(p.B, wr)
			p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}})
			p.A.want(1, rdma.RemAccessErr)
			// One of the two is flushed first: the queues are apart.
			seen := map[uint64]bool{}
			for range 2 {
				wc := p.A.flushed()
				seen[wc.ID] = true
			}
			if !seen[2] || !seen[1000] {
				t.Errorf("flushed: %v", seen)
			}
			if s := p.A.QP.State(); s != rdma.ErrState {
				t.Errorf("the requester is in state %v", s)
			}
			p.B.equal(p.B.Buf, was, "target")
		})
	}
}

// flushed waits for a completion that must be a flush.
func (e *End) flushed() rdma.WC {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	wc, err := rdma.One(ctx, e.CQ)
	if !errors.Is(err, rdma.FlushErr) {
		e.t.Fatalf("completion %+v (%v) is not a flush", wc, err)
	}
	return wc
}

// deregistered: a key ends with its region.
func deregistered(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	buf := p.B.Buf
	mr, err := p.B.PD.Register(rdma.Host(buf), all)
	p.B.ok(err)
	key := rdma.Remote(mr)
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}, RKey: key.RKey})
	p.A.want(1, rdma.Success)
	closing(t, mr)
	fill(p.A.Buf, 11)
	p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}, RKey: key.RKey})
	p.A.want(2, rdma.RemAccessErr)
	p.B.equal(buf[:8], make([]byte, 8), "target")
}

// localProtection: a wrong local key fails at home, after what was posted before it.
func localProtection(t *testing.T, b Backend) {
	for name, sge := range map[string]func(p *Pair) rdma.SGE{
		"unknown key": func(p *Pair) rdma.SGE { return rdma.SGE{Addr: p.A.MR.Addr(), Len: 8, LKey: 0xdeadbeef} },
		"behind":      func(p *Pair) rdma.SGE { return p.A.at(size-4, 8) },
	} {
		t.Run(name, func(t *testing.T) {
			p := b.Connect(t, setup{})
			p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}})
			code := rdma.LocProtErr
			if b.Quirks.LocalErrorFlushes {
				p.A.want(1, rdma.Success)
				code = rdma.FlushErr
			}
			p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpWrite, SGE: []rdma.SGE{sge(p)}})
			p.A.post(p.B, rdma.SendWR{ID: 3, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}})
			if !b.Quirks.LocalErrorFlushes {
				p.A.want(1, rdma.Success)
			}
			p.A.want(2, code)
			p.A.want(3, rdma.FlushErr)
		})
	}
}

func receiveTooSmall(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	fill(p.A.Buf[:100], 12)
	p.B.recv(1, 0, 99)
	p.B.recv(2, 0, 200)
	p.A.post(p.B, rdma.SendWR{ID: 3, Op: rdma.OpSend, SGE: []rdma.SGE{p.A.at(0, 100)}})
	codes := cmp.Or(b.Quirks.ReceiveTooSmall, [2]rdma.Status{rdma.RemInvReqErr, rdma.LocLenErr})
	p.A.want(3, codes[0])
	p.B.want(1, codes[1])
	p.B.want(2, rdma.FlushErr)
}

// notReady: a send waits for a receive that is posted later, and what follows keeps its order.
func notReady(t *testing.T, b Backend) {
	p := b.Connect(t, setup{options: rdma.Options{MinRNRTimer: 1}})
	for i := range 8 {
		p.A.Buf[i] = byte(i + 1)
		p.A.post(p.B, rdma.SendWR{ID: uint64(i), Op: rdma.OpSend, SGE: []rdma.SGE{p.A.at(uint64(i), 1)}})
	}
	for i := range 8 {
		p.B.recv(uint64(100+i), uint64(i), 1)
		p.B.want(uint64(100+i), rdma.Success)
		p.A.want(uint64(i), rdma.Success)
	}
	p.B.equal(p.B.Buf[:8], []byte{1, 2, 3, 4, 5, 6, 7, 8}, "received")
}

func notReadyExceeded(t *testing.T, b Backend) {
	two := uint8(2)
	p := b.Connect(t, setup{options: rdma.Options{MinRNRTimer: 1, RNRRetries: &two}})
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpSend, SGE: []rdma.SGE{p.A.at(0, 8)}})
	p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}})
	p.A.want(1, rdma.RNRRetryExcErr)
	p.A.want(2, rdma.FlushErr)
}

// retryExceeded: the peer's queue pair is gone.
func retryExceeded(t *testing.T, b Backend) {
	one := uint8(1)
	p := b.Connect(t, setup{options: rdma.Options{Timeout: cmp.Or(b.Retry, 10), Retries: &one}})
	closing(t, p.B.QP)
	p.B.QP = nil
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}})
	p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpRead, SGE: []rdma.SGE{p.A.at(0, 8)}})
	p.A.want(1, rdma.RetryExcErr)
	p.A.want(2, rdma.FlushErr)
}

func flush(t *testing.T, b Backend) {
	p := b.Connect(t, setup{receives: 3})
	p.A.ok(p.A.QP.Modify(rdma.QPAttr{State: rdma.ErrState}, rdma.MaskState))
	for i := range 3 {
		p.A.want(uint64(1000+i), rdma.FlushErr)
	}
	// Later posts are accepted and flushed.
	p.A.post(p.B, rdma.SendWR{ID: 5, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}})
	p.A.want(5, rdma.FlushErr)
	p.A.recv(6, 0, 8)
	p.A.want(6, rdma.FlushErr)
	p.A.empty()
}

// drain: every request completes once.
func drain(t *testing.T, b Backend) {
	p := b.Connect(t, setup{receives: 5})
	for i := range 10 {
		p.A.post(p.B, rdma.SendWR{ID: uint64(i), Op: rdma.OpSend, SGE: []rdma.SGE{p.A.at(0, 8)}})
	}
	seen := map[uint64]int{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p.A.ok(rdma.Drain(ctx, p.A.QP, p.A.CQ, p.A.CQ, func(wc rdma.WC) { seen[wc.ID]++ }))
	for i := range 10 {
		if seen[uint64(i)] != 1 {
			t.Errorf("request %d completed %d times", i, seen[uint64(i)])
		}
	}
	for i := range 5 {
		if seen[uint64(1000+i)] != 1 {
			t.Errorf("receive %d completed %d times", i, seen[uint64(1000+i)])
		}
	}
	p.A.empty()
}

// resetAndReuse: after an error both queue pairs work again.
func resetAndReuse(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}, RemoteAddr: size})
	p.A.want(1, rdma.RemAccessErr)
	for _, e := range []*End{p.A, p.B} {
		e.ok(e.QP.Modify(rdma.QPAttr{State: rdma.Reset}, rdma.MaskState))
	}
	p.establish(t, setup{})
	fill(p.A.Buf[:8], 13)
	p.A.post(p.B, rdma.SendWR{ID: 2, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}})
	p.A.want(2, rdma.Success)
	p.B.equal(p.B.Buf[:8], p.A.Buf[:8], "written")
}

// otherDomain: a key of another protection domain does not count.
func otherDomain(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	pd, err := p.B.Dev.AllocPD()
	p.B.ok(err)
	defer closing(t, pd)
	mr, err := pd.Register(rdma.Host(p.B.Buf), all)
	p.B.ok(err)
	defer closing(t, mr)
	p.A.post(p.B, rdma.SendWR{ID: 1, Op: rdma.OpWrite, SGE: []rdma.SGE{p.A.at(0, 8)}, RKey: mr.RKey()})
	p.A.want(1, rdma.RemAccessErr)
}

// busy: what is in use cannot be closed.
func busy(t *testing.T, b Backend) {
	p := b.Connect(t, setup{})
	for _, c := range []interface{ Close() error }{p.A.PD, p.A.CQ} {
		if err := c.Close(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("close %T in use: %v", c, err)
		}
	}
}
