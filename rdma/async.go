package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// A PeerOp is an operation on a word that a stream executes for a PeerQueue, as the
// descriptors of ibv_exp_peer_commit and ibv_exp_peer_peek are: a store, or a wait until the
// word is at least the value, modulo 2^32.
type PeerOp struct {
	Wait  bool
	Addr  gpu.Addr
	Value uint32
}

// Enqueue puts operations into a stream.
func Enqueue(s gpu.Stream, ops []PeerOp) error {
	for _, op := range ops {
		var err error
		if op.Wait {
			err = s.Wait(op.Addr, uint64(op.Value), 4, gpu.CondGEQ)
		} else {
			err = s.Write(op.Addr, uint64(op.Value), 4)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A PeerQueue is a queue pair whose requests a GPU stream starts and waits for, in stream
// order: PeerDirect Async. The CPU prepares requests; a stream rings the doorbell, which is
// a word of pinned memory that a thread of the CPU watches, because no adapter offers its
// own doorbell today. The queue is the only user of the queue pair and its send queue.
type PeerQueue struct {
	qp    QP
	cq    CQ
	dev   gpu.Device
	mem   gpu.Addr
	bell  *atomic.Uint32 // requests that the stream has started
	count *atomic.Uint32 // requests that have completed

	mu        sync.Mutex
	prepared  []SendWR // not given to the device
	committed int      // of prepared
	next      uint32   // number of the first prepared
	peeks     int
	err       error

	stop context.CancelFunc
	done chan struct{}
}

// NewPeerQueue is ibv_exp_create_cq and ibv_exp_create_qp with ibv_exp_peer_direct_attr, for
// a queue pair that is ready to send.
func NewPeerQueue(dev gpu.Device, qp QP, cq CQ) (*PeerQueue, error) {
	mem, err := dev.Alloc(gpu.KindHost, 4096, gpu.HostPortable|gpu.HostMapped)
	if err != nil {
		return nil, fmt.Errorf("peer queue: allocate words: %w", err)
	}
	b := gpu.HostBytes(mem, 4096)
	clear(b)
	ctx, stop := context.WithCancel(context.Background())
	q := &PeerQueue{qp: qp, cq: cq, dev: dev, mem: mem, bell: wordAt(b, 0), count: wordAt(b, 64), stop: stop, done: make(chan struct{})}
	go q.run(ctx)
	return q, nil
}

// Prepare queues a request, which starts when the stream executes its commit.
func (q *PeerQueue) Prepare(wr SendWR) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wr.Flags |= Signaled
	wr.SGE = append([]SGE(nil), wr.SGE...)
	q.prepared = append(q.prepared, wr)
}

// Commit is ibv_exp_peer_commit_qp: it returns what the stream has to do to start all
// prepared requests.
func (q *PeerQueue) Commit() []PeerOp {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.committed = len(q.prepared)
	return []PeerOp{{Addr: q.mem, Value: q.next + uint32(q.committed)}}
}

// Rollback is ibv_exp_rollback_qp: it drops the requests that were prepared since the last
// commit.
func (q *PeerQueue) Rollback() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.prepared) - q.committed
	q.prepared = q.prepared[:q.committed]
	return n
}

// Peek is ibv_exp_peer_peek_cq: it returns what the stream has to do to wait until all
// committed requests have completed. A failed request counts as completed; see Err.
func (q *PeerQueue) Peek() []PeerOp {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.peeks++
	return []PeerOp{{Wait: true, Addr: q.mem + 64, Value: q.next + uint32(q.committed)}}
}

// AbortPeek is ibv_exp_peer_abort_peek_cq: a wait that was not put into a stream is not
// needed any more.
func (q *PeerQueue) AbortPeek() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.peeks == 0 {
		return fmt.Errorf("peer queue: abort peek: there is none: %w", syscall.EINVAL)
	}
	q.peeks--
	return nil
}

// Err is the first error of a request.
func (q *PeerQueue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Close ends the queue; streams must not use it any more.
func (q *PeerQueue) Close() error {
	q.stop()
	<-q.done
	return q.dev.Free(q.mem)
}

// run posts what streams start, and counts what completes.
func (q *PeerQueue) run(ctx context.Context) {
	defer close(q.done)
	var wcs [16]WC
	for pause := time.Duration(0); ctx.Err() == nil; {
		worked := q.start()
		n, err := q.cq.Poll(wcs[:])
		q.finish(wcs[:n], err)
		if worked || n > 0 {
			pause = 0
			continue
		}
		pause = min(pause+time.Microsecond, 100*time.Microsecond)
		time.Sleep(pause)
	}
}

// start posts the requests up to the doorbell. What cannot be posted has failed.
func (q *PeerQueue) start() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int(int32(q.bell.Load() - q.next))
	if n <= 0 || n > q.committed {
		return false
	}
	posted, err := q.qp.PostSend(q.prepared[:n])
	if errors.Is(err, syscall.ENOMEM) {
		n = posted // the queue is full; the rest follows
	} else if err != nil {
		q.fail(err)
		q.count.Add(uint32(n - posted))
	}
	q.prepared = append(q.prepared[:0], q.prepared[n:]...)
	q.committed -= n
	q.next += uint32(n)
	return n > 0
}

func (q *PeerQueue) finish(wcs []WC, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.fail(err)
	}
	for _, wc := range wcs {
		q.fail(wc.Err())
		q.count.Add(1)
	}
}

func (q *PeerQueue) fail(err error) {
	q.err = cmp.Or(q.err, err)
}
