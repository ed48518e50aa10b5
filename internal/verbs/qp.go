package verbs

import (
	"bytes"
	"cmp"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

// A QP is a reliable connected queue pair: an rdma.QP.
type QP struct {
	pd     *PD
	dev    *Device
	num    uint32
	cfg    rdma.QPConfig
	caps   rdma.QPCaps
	sendCQ *CQ
	recvCQ *CQ

	mu     sync.Mutex
	closed bool
	state  rdma.State
	attr   rdma.QPAttr
	conn   *conn         // nil while not connected
	ended  chan struct{} // closed when the current life (RTR to ERR, RESET or Close) ends; nil before
	lost   chan struct{} // a token: the dialer has to dial
	life   int           // counts lives and handshakes, so that a late handshake is dropped

	send sendQueue
	recv recvQueue
	resp responder

	timer   *time.Timer
	timing  bool
	seen    uint64 // progress at the last tick
	retries uint8
}

// CreateQP implements rdma.PD.
func (p *PD) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q, err := p.createQP(cfg)
	if err != nil {
		return nil, fmt.Errorf("create queue pair on %s: %w", p.dev.cfg.Info.Name, err)
	}
	return q, nil
}

func (p *PD) createQP(cfg rdma.QPConfig) (*QP, error) {
	caps := cfg.Caps.WithDefaults()
	send, ok1 := cfg.SendCQ.(*CQ)
	recv, ok2 := cfg.RecvCQ.(*CQ)
	switch {
	case !ok1 || !ok2 || send.dev != p.dev || recv.dev != p.dev:
		return nil, fmt.Errorf("the completion queues must be of the same device: %w", syscall.EINVAL)
	case min(caps.SendWR, caps.RecvWR, caps.SendSGE, caps.RecvSGE) < 1 || caps.InlineData < 0 || max(caps.SendWR, caps.RecvWR) > maxQPWR ||
		max(caps.SendSGE, caps.RecvSGE) > maxSGE || caps.InlineData > maxInline:
		return nil, fmt.Errorf("sizes %+v exceed the device's (requests %d, SGEs %d, inline %d): %w", caps, maxQPWR, maxSGE, maxInline, syscall.EINVAL)
	}
	if err := p.hold(); err != nil {
		return nil, err
	}
	if err := send.use(1); err != nil {
		p.drop()
		return nil, err
	}
	if err := recv.use(1); err != nil {
		_ = send.use(-1)
		p.drop()
		return nil, err
	}
	q := &QP{pd: p, dev: p.dev, cfg: cfg, caps: caps, sendCQ: send, recvCQ: recv, lost: make(chan struct{}, 1)}
	q.send.slots = make([]sendWQE, caps.SendWR)
	q.recv.slots = make([]recvWQE, caps.RecvWR)
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	q.num = newKey(d.pairs, 24)
	d.pairs[q.num] = q
	return q, nil
}

// Num and State implement rdma.QP.
func (q *QP) Num() uint32 { return q.num }

// State is the current state.
func (q *QP) State() rdma.State {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

// Modify implements rdma.QP.
func (q *QP) Modify(a rdma.QPAttr, mask rdma.Mask) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("modify QP %#x: it is closed: %w", q.num, syscall.EINVAL)
	}
	if err := rdma.CheckStep(q.state, a.State, mask); err != nil {
		return fmt.Errorf("QP %#x: %w", q.num, err)
	}
	if err := q.checkAttr(a, mask); err != nil {
		return fmt.Errorf("modify QP %#x: %w", q.num, err)
	}
	q.set(a, mask)
	if mask&rdma.MaskState == 0 {
		return nil
	}
	return q.enter(a.State)
}

func (q *QP) checkAttr(a rdma.QPAttr, mask rdma.Mask) error {
	switch {
	case mask&rdma.MaskPort != 0 && a.Port != 1:
		return fmt.Errorf("port %d: there is port 1 only: %w", a.Port, syscall.EINVAL)
	case mask&rdma.MaskAV != 0 && (a.AV.DGID.IsZero() || int(a.AV.SGIDIndex) >= len(q.dev.gids)):
		return fmt.Errorf("peer GID %v with local GID index %d: the peer's must not be zero, and the table has %d: %w", a.AV.DGID, a.AV.SGIDIndex, len(q.dev.gids), syscall.EINVAL)
	case mask&rdma.MaskRetryCount != 0 && a.RetryCount > 7, mask&rdma.MaskRNRRetry != 0 && a.RNRRetry > 7,
		mask&rdma.MaskTimeout != 0 && a.Timeout > 31, mask&rdma.MaskMinRNRTimer != 0 && a.MinRNRTimer > 31:
		return fmt.Errorf("retries must be 0 to 7, timers 0 to 31: %w", syscall.EINVAL)
	case mask&rdma.MaskMaxRDAtomic != 0 && a.MaxRDAtomic > maxRDAtomic, mask&rdma.MaskMaxDestRDAtomic != 0 && a.MaxDestRDAtomic > maxRDAtomic:
		return fmt.Errorf("reads and atomics in flight must be at most %d: %w", maxRDAtomic, syscall.EINVAL)
	case (mask&rdma.MaskRQPSN != 0 && a.RQPSN>>24 != 0) || (mask&rdma.MaskSQPSN != 0 && a.SQPSN>>24 != 0) || (mask&rdma.MaskDestQPN != 0 && a.DestQPN>>24 != 0):
		return fmt.Errorf("QP numbers and PSNs have 24 bits: %w", syscall.EINVAL)
	}
	return nil
}

// set copies the attributes in mask.
func (q *QP) set(a rdma.QPAttr, mask rdma.Mask) {
	to := &q.attr
	for _, f := range [...]struct {
		bit rdma.Mask
		set func()
	}{
		{rdma.MaskAccess, func() { to.Access = a.Access }},
		{rdma.MaskPKey, func() { to.PKeyIndex = a.PKeyIndex }},
		{rdma.MaskPort, func() { to.Port = a.Port }},
		{rdma.MaskAV, func() { to.AV = a.AV; to.AV.DLID = cmp.Or(a.AV.DLID, DefaultPort) }},
		{rdma.MaskPathMTU, func() { to.PathMTU = a.PathMTU }},
		{rdma.MaskTimeout, func() { to.Timeout = a.Timeout }},
		{rdma.MaskRetryCount, func() { to.RetryCount = a.RetryCount }},
		{rdma.MaskRNRRetry, func() { to.RNRRetry = a.RNRRetry }},
		{rdma.MaskRQPSN, func() { to.RQPSN = a.RQPSN }},
		{rdma.MaskMaxRDAtomic, func() { to.MaxRDAtomic = a.MaxRDAtomic }},
		{rdma.MaskMinRNRTimer, func() { to.MinRNRTimer = a.MinRNRTimer }},
		{rdma.MaskSQPSN, func() { to.SQPSN = a.SQPSN }},
		{rdma.MaskMaxDestRDAtomic, func() { to.MaxDestRDAtomic = a.MaxDestRDAtomic }},
		{rdma.MaskDestQPN, func() { to.DestQPN = a.DestQPN }},
	} {
		if mask&f.bit != 0 {
			f.set()
		}
	}
}

// enter changes the state.
func (q *QP) enter(s rdma.State) error {
	was := q.state
	switch {
	case s == rdma.ErrState:
		q.fail(nil, rdma.FlushErr)
	case s == rdma.Reset:
		q.end()
		q.send.clear()
		q.recv.clear()
		q.resp = responder{}
		q.retries, q.attr = 0, rdma.QPAttr{}
		q.sendCQ.forget(q.num)
		q.recvCQ.forget(q.num)
		q.state = s
	case s == rdma.RTR && was == rdma.Init:
		if q.lower() == 0 {
			return fmt.Errorf("modify QP %#x: it cannot be connected with itself: %w", q.num, syscall.EINVAL)
		}
		q.state = s
		q.begin()
	default:
		q.state = s
	}
	return nil
}

// lower compares this end with the peer's: the lower one dials.
func (q *QP) lower() int {
	own := q.dev.gids[q.attr.AV.SGIDIndex].GID
	if c := bytes.Compare(own[:], q.attr.AV.DGID[:]); c != 0 {
		return c
	}
	if q.dev.lid != q.attr.AV.DLID {
		return int(q.dev.lid) - int(q.attr.AV.DLID)
	}
	return int(q.num) - int(q.attr.DestQPN)
}

// begin starts a life: from now on the peer can connect.
func (q *QP) begin() {
	q.ended = make(chan struct{})
	q.life++
	if q.lower() < 0 {
		ended := q.ended
		q.dev.tasks.Go(func() { q.dial(ended) })
	}
}

// end ends a life. When it returns, no memory of posted requests is in use.
func (q *QP) end() {
	q.disconnect()
	q.life++
	if q.ended != nil {
		close(q.ended)
		q.ended = nil
	}
	q.stopTimer()
}

// disconnect drops the connection, if there is one. A dialer dials again.
func (q *QP) disconnect() {
	if q.conn == nil {
		return
	}
	q.conn.cut()
	q.conn = nil
	select {
	case q.lost <- struct{}{}:
	default:
	}
}

// fail puts the queue pair into the error state. The oldest send request gets a status,
// everything else is flushed. If there is a connection, frames queued on it inform the peer.
func (q *QP) fail(last *conn, oldest rdma.Status) {
	if last != nil {
		last.linger()
		q.conn = nil
	}
	q.end()
	q.state = rdma.ErrState
	q.flushSend(oldest)
	q.flushRecv(rdma.FlushErr)
}

// Close implements rdma.QP.
func (q *QP) Close() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return fmt.Errorf("destroy QP %#x: it is closed: %w", q.num, syscall.EINVAL)
	}
	q.closed = true
	q.end()
	q.mu.Unlock()
	d := q.dev
	d.mu.Lock()
	delete(d.pairs, q.num)
	d.mu.Unlock()
	q.sendCQ.forget(q.num)
	q.recvCQ.forget(q.num)
	_ = q.sendCQ.use(-1) // cannot be closed while in use
	_ = q.recvCQ.use(-1)
	q.pd.drop()
	return nil
}

// timeout is how long a request may see no progress.
func (q *QP) timeout() time.Duration { return 4096 * time.Nanosecond << q.attr.Timeout }

// watch starts the timer if requests wait for answers.
func (q *QP) watch() {
	if q.timing || q.attr.Timeout == 0 || q.state != rdma.RTS || q.send.head == q.send.tail {
		return
	}
	q.timing = true
	if q.timer == nil {
		q.timer = time.AfterFunc(q.timeout(), q.tick)
		return
	}
	q.timer.Reset(q.timeout())
}

func (q *QP) stopTimer() {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.timing, q.retries = false, 0
}

// tick looks for progress. A connection without any is broken and made again; after too
// many such retries the peer is lost.
func (q *QP) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.timing || q.state != rdma.RTS {
		return
	}
	q.timing = false
	if p := q.send.progress.Load(); p != q.seen || q.send.head == q.send.tail || q.send.paused {
		q.seen, q.retries = p, 0
		q.watch()
		return
	}
	q.dev.counters.timeouts.Add(1)
	if q.retries >= q.attr.RetryCount {
		q.dev.counters.retriesExceeded.Add(1)
		q.fail(nil, rdma.RetryExcErr)
		return
	}
	q.retries++
	q.disconnect()
	q.watch()
}
