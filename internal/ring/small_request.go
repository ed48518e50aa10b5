package ring

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/internal/uring"
)

// smallSlots run small requests, or begin larger ones, in their callers' goroutines.
type smallSlots struct {
	dev     gpu.Device
	log     *slog.Logger
	pool    *pinnedPool
	files   *fileIO
	copies  *copyQueue
	staging bool  // the slots are for Stage
	maxLen  int64 // of what a slot takes
	flags   flagChoice
	poll    *poller

	_ [64]byte // mu's cache line is contended, the fields above are read by every request
	// mu guards what follows. It is not held during I/O, nor while memory is pinned.
	mu      sync.Mutex
	changed sync.Cond    // a slot was released, or more were pinned
	idle    []*smallSlot // last in, first out, so that few are used while few are needed; see near
	all     []*smallSlot
	limit   int
	growing bool // a caller pins more
	closed  bool
}

// A smallSlot is a stream and a slot.
type smallSlot struct {
	stream  gpu.Stream
	addr    gpu.Addr
	mem     []byte
	segment segment
	flag    completionFlag
	uring   *uring.Ring // for reads that are polled for; nil before the first
	cpu     uint32      // that has used the slot last, if it is for Stage
	few     bool        // so few callers that completion flags may be faster
	reads   uint32
	turn    time.Duration // of the request, if it is traced
}

// errNoSmallSlots means that not one small slot could be made.
var errNoSmallSlots = errors.New("ring: no slots for small requests")

func (m *smallSlots) init(r *Ring, maxLen int64, limit int) {
	m.dev, m.log, m.pool, m.files, m.copies, m.poll = r.dev, r.log, &r.pool, &r.files, &r.copies, &r.poll
	m.maxLen, m.limit = maxLen, limit
	m.changed.L = &m.mu
}

// slotBytes is what a slot pins: room for an offset inside a page, and a completion flag
// in the last page.
func (m *smallSlots) slotBytes() int64 { return m.maxLen + 2*page }

// acquire takes a slot. It pins more while the budget allows, and otherwise waits.
func (m *smallSlots) acquire() (*smallSlot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		if m.closed {
			return nil, ErrClosed
		}
		if m.limit == 0 {
			return nil, errNoSmallSlots
		}
		if n := len(m.idle); n > 0 {
			at := n - 1
			if m.staging {
				at = m.near(currentCPU())
			}
			s := m.idle[at]
			m.idle = slices.Delete(m.idle, at, at+1)
			s.few = len(m.all)-len(m.idle) <= flagCallers
			return s, nil
		}
		if len(m.all) >= m.limit || m.growing {
			m.changed.Wait()
			continue
		}
		m.growing = true
		have := len(m.all)
		n := min(smallSlotsPerSlab, m.limit-have)
		m.mu.Unlock()
		more, err := m.pin(n)
		if err != nil {
			m.log.Warn("ring: cannot pin slots for small requests; continuing with fewer", "slots", have, "error", err)
		}
		m.mu.Lock()
		m.growing = false
		m.changed.Broadcast()
		if err != nil {
			m.limit = have
			continue
		}
		m.all = append(m.all, more...)
		m.idle = append(m.idle, more...)
	}
}

// near is the idle slot that a processor has used last, whose caches may still have it: on
// an H200 eight callers that stage 512 KiB are 2.5 % faster so. Or else it is the one that
// has been idle the longest, and the processor's from now on.
func (m *smallSlots) near(cpu uint32) int {
	at := max(slices.IndexFunc(m.idle, func(s *smallSlot) bool { return s.cpu == cpu }), 0)
	m.idle[at].cpu = cpu
	return at
}

func (m *smallSlots) release(s *smallSlot) {
	m.mu.Lock()
	m.idle = append(m.idle, s)
	m.mu.Unlock()
	m.changed.Signal()
}

// pin makes n slots.
func (m *smallSlots) pin(n int) ([]*smallSlot, error) {
	size := m.slotBytes()
	addr, mem, err := m.pool.alloc(int64(n) * size)
	if err != nil {
		return nil, err
	}
	list := make([]*smallSlot, 0, n)
	for i := range n {
		at := int64(i) * size
		s := &smallSlot{addr: addr + gpu.Addr(at), mem: mem[at : at+size]}
		if s.stream, err = m.dev.NewStream(); err != nil {
			return nil, errors.Join(fmt.Errorf("ring: %w", err), closeStreams(list))
		}
		s.flag.init(s.stream, s.addr+gpu.Addr(size-page))
		list = append(list, s)
	}
	return list, nil
}

func closeStreams(list []*smallSlot) (err error) {
	for _, s := range list {
		err = errors.Join(err, s.stream.Close())
		if s.uring != nil {
			err = errors.Join(err, s.uring.Close())
		}
	}
	return err
}

// close waits until all slots are released.
func (m *smallSlots) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.changed.Broadcast()
	for m.growing || len(m.idle) < len(m.all) {
		m.changed.Wait()
	}
	return closeStreams(m.all)
}

// run runs a request.
func (m *smallSlots) run(q *Request, res *Result) error {
	if err := q.check(); err != nil || q.Len == 0 {
		return err
	}
	s, err := m.acquire()
	if err != nil {
		return err
	}
	seg := &s.segment
	*seg = segment{at: int(q.Off & (page - 1)), n: int(q.Len)}
	if q.Write {
		m.write(q, s)
	} else {
		m.read(q, s)
	}
	*res = Result{N: int64(seg.got), HostBytes: int64(seg.got), DirectBytes: int64(seg.direct), Retries: seg.retries, Turn: s.turn}
	if !q.Write {
		res.Cache = seg.cacheUse()
		q.count(res)
	}
	err = seg.err
	m.release(s)
	return err
}

func (m *smallSlots) read(q *Request, s *smallSlot) {
	seg := &s.segment
	mem := s.mem[:len(s.mem)-page] // the last page has the completion flag
	m.poll.read(m.files, q, s, mem)
	m.files.read(q, seg, mem)
	n := seg.got
	s.turned()
	if n == 0 {
		return
	}
	if n >= demoteMin {
		if m.copies.behind(n) {
			cldemote(s.mem[seg.at : seg.at+n])
		}
		m.copies.Add(int64(n))
		defer m.copies.Add(-int64(n))
	}
	s.copied(q, n, m.copyToGPU(s, q.Addr, n))
}

func (m *smallSlots) write(q *Request, s *smallSlot) {
	seg := &s.segment
	// After a copy from the GPU a completion flag is late: 43 us instead of 9.
	s.copied(q, seg.n, s.copy(s.addr+gpu.Addr(seg.at), q.Addr, uint64(seg.n)))
	s.turned()
	if seg.err == nil {
		m.files.write(q, seg, s.mem)
	}
}

// turned marks the end of the first step of a request. When it began and the second one
// ends is when the whole does, so that a trace takes one reading of the clock.
func (s *smallSlot) turned() {
	s.turn = 0
	if trace.On() {
		s.turn = trace.Now()
	}
}

// copied records the outcome of the slot's copy of n bytes.
func (s *smallSlot) copied(q *Request, n int, err error) {
	if err != nil {
		s.segment.got, s.segment.direct = 0, 0
		s.segment.err = &Error{"copy", q.Off, int64(n), q.Addr, err}
	}
}

// copy copies and waits for the driver.
func (s *smallSlot) copy(dst, src gpu.Addr, n uint64) error {
	if err := s.stream.Copy(dst, src, n); err != nil {
		return err
	}
	return s.wait()
}

func (s *smallSlot) wait() error {
	err := s.stream.Synchronize()
	if err != nil {
		_ = s.stream.Synchronize() // again, so that no copy outlives the use of the slot
	}
	return err
}
