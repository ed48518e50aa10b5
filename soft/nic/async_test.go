package nic_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft"
)

// A WRITE is posted and waited for in stream order: it carries what the stream wrote before
// it, and the stream goes on when it has arrived.
func TestStreamOrder(t *testing.T) {
	r := newRig(t, soft.Config{})
	src, dst := r.alloc(1<<20), r.alloc(1<<20)
	from, to := r.from.register(rdma.Address(src, 1<<20), all), r.target.register(rdma.Address(dst, 1<<20), all)
	q, err := rdma.NewPeerQueue(r.gpu, r.from.qp, r.from.cq)
	r.from.ok(err)
	s, err := r.gpu.NewStream()
	r.from.ok(err)
	for i := range uint32(20) {
		r.from.ok(s.Fill(src, i+1, 1, 1<<20))
		wr := rdma.SendWR{Op: rdma.OpWrite, SGE: []rdma.SGE{rdma.Local(from, 0, 1<<20)}, RemoteAddr: to.Addr(), RKey: to.RKey()}
		q.Prepare(wr)
		ops := q.Commit()
		wr.RKey++ // a request that is taken back
		q.Prepare(wr)
		if n := q.Rollback(); n != 1 {
			t.Errorf("%d requests were rolled back", n)
		}
		r.from.ok(rdma.Enqueue(s, append(ops, q.Peek()...)))
	}
	r.from.ok(s.Copy(src, dst, 1<<20))
	r.from.ok(s.Synchronize())
	r.from.ok(q.Err())
	want := bytes.Repeat([]byte{20}, 1<<20)
	if !bytes.Equal(r.contents(dst, 1<<20), want) || !bytes.Equal(r.contents(src, 1<<20), want) {
		t.Error("the writes are not in stream order")
	}
	q.Peek()
	for range 21 {
		r.from.ok(q.AbortPeek())
	}
	if err := q.AbortPeek(); err == nil {
		t.Error("a peek that does not exist was aborted")
	}
	r.from.ok(errors.Join(s.Close(), q.Close(), from.Close(), to.Close(), r.gpu.Free(src), r.gpu.Free(dst)))
}

// A request that fails does not block the stream, and is reported.
func TestStreamGoesOnAfterAnError(t *testing.T) {
	r := newRig(t, soft.Config{})
	q, err := rdma.NewPeerQueue(r.gpu, r.from.qp, r.from.cq)
	r.from.ok(err)
	s, err := r.gpu.NewStream()
	r.from.ok(err)
	for range 3 {
		q.Prepare(rdma.SendWR{Op: rdma.OpWrite, SGE: []rdma.SGE{rdma.Local(r.mr, 0, 8)}, RKey: 0xdead})
	}
	r.from.ok(rdma.Enqueue(s, append(q.Commit(), q.Peek()...)))
	r.from.ok(s.Synchronize())
	if err := q.Err(); !errors.Is(err, rdma.RemAccessErr) {
		t.Errorf("error %v", err)
	}
	r.from.ok(errors.Join(s.Close(), q.Close()))
}
