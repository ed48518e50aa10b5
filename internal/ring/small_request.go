package ring

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/crc32c"
)

// A small is what a small request needs: a stream and a slot.
type smallSlot struct {
	stream  gpu.Stream
	addr    gpu.Addr
	mem     []byte
	segment segment

	// The GPU writes seq into flag behind a copy to it, where that is seen earlier
	// than the driver's own mark.
	useFlag    bool
	copyWriter copyWriter // nil where copy and mark are two calls
	flag       *atomic.Uint32
	flagAddr   gpu.Addr
	seq        uint32
}

// A marker is a stream that takes a copy, and the mark to store behind it, in one
// call.
type copyWriter interface {
	CopyWrite(dst, src gpu.Addr, n uint64, at gpu.Addr, value uint32) error
}

// smalls are lent last in, first out, so that few are used while few are needed.
type smallSlots struct {
	mu       sync.Mutex
	returned sync.Cond
	idle     []*smallSlot
	all      []*smallSlot
	limit    int
	growing  bool // somebody is pinning more
	closed   bool
}

// errNoSmalls means that not one small slot could be made.
var errNoSmallSlots = errors.New("ring: no slots for small requests")

// getSmall lends a slot, pins more while the budget allows, and else waits.
func (r *Ring) acquireSmall() (*smallSlot, error) {
	m := &r.smallSlots
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
			s := m.idle[n-1]
			m.idle = m.idle[:n-1]
			s.useFlag = r.flags && len(m.all)-len(m.idle) <= flagCallers
			return s, nil
		}
		if len(m.all) >= m.limit || m.growing {
			m.returned.Wait()
			continue
		}
		m.growing = true
		m.mu.Unlock()
		more, err := r.newSmallSlots(min(smallSlotsPerSlab, m.limit-len(m.all)))
		m.mu.Lock()
		m.growing = false
		m.returned.Broadcast()
		if err != nil {
			m.limit = len(m.all)
			r.log.Warn("ring: going on with fewer small slots", "slots", m.limit, "error", err)
			continue
		}
		m.all = append(m.all, more...)
		m.idle = append(m.idle, more...)
	}
}

func (r *Ring) releaseSmall(s *smallSlot) {
	r.smallSlots.mu.Lock()
	r.smallSlots.idle = append(r.smallSlots.idle, s)
	r.smallSlots.mu.Unlock()
	r.smallSlots.returned.Signal()
}

func (r *Ring) newSmallSlots(n int) ([]*smallSlot, error) {
	addr, mem, err := r.pool.alloc(int64(n) * smallSlotBytes)
	if err != nil {
		return nil, err
	}
	list := make([]*smallSlot, 0, n)
	for i := range n {
		s := &smallSlot{addr: addr + gpu.Addr(i*smallSlotBytes), mem: mem[i*smallSlotBytes : (i+1)*smallSlotBytes]}
		if s.stream, err = r.dev.NewStream(); err != nil {
			return nil, errors.Join(fmt.Errorf("ring: %w", err), closeStreams(list))
		}
		s.copyWriter, _ = s.stream.(copyWriter)
		s.flagAddr = s.addr + smallSlotBytes - page
		s.flag = completionFlag(s.flagAddr)
		s.flag.Store(0) // the memory may have been a ring's before
		list = append(list, s)
	}
	r.flagOnce.Do(func() { r.flags = r.flagsFaster(list[0]) })
	return list, nil
}

// flagCallers is how many callers may wait for flags: a flag is a call more, and
// the driver lets in one at a time.
const flagCallers = 2

// flagRounds is how often each way to wait is tried, the first few not counted:
// some hundred microseconds in all.
const (
	flagRounds = 25
	flagWarmUp = 4
)

// flagsPay measures whether waiting for a flag is the faster way to wait for a copy.
func (r *Ring) flagsFaster(s *smallSlot) bool {
	to, err := r.dev.Alloc(gpu.KindDevice, page, 0)
	if err != nil {
		return false
	}
	defer r.dev.Free(to)
	var took [2][]time.Duration
	for i := range 2 * (flagWarmUp + flagRounds) {
		began := time.Now()
		s.useFlag = i%2 == 1
		marked, err := s.launch(to, s.addr, page)
		if err == nil {
			err = s.wait(marked)
		}
		if err != nil || s.useFlag != marked {
			return false
		}
		if i >= 2*flagWarmUp {
			took[i%2] = append(took[i%2], time.Since(began))
		}
	}
	slices.Sort(took[0])
	slices.Sort(took[1])
	return took[1][flagRounds/2] < took[0][flagRounds/2]
}

func closeStreams(list []*smallSlot) (err error) {
	for _, s := range list {
		err = errors.Join(err, s.stream.Close())
	}
	return err
}

// closeSmalls waits until all are back.
func (r *Ring) closeSmallSlots() error {
	m := &r.smallSlots
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.returned.Broadcast()
	for m.growing || len(m.idle) < len(m.all) {
		m.returned.Wait()
	}
	return closeStreams(m.all)
}

// runSmall does a small request in the caller's goroutine.
func (r *Ring) runSmall(q *Request, res *Result) error {
	if err := q.check(); err != nil || q.Len == 0 {
		return err
	}
	s, err := r.acquireSmall()
	if err != nil {
		return err
	}
	p := &s.segment
	*p = segment{at: int(q.Off & (page - 1)), n: int(q.Len)}
	if q.Write {
		r.writeSmall(q, s)
	} else {
		r.readSmall(q, s)
	}
	*res = Result{N: int64(p.got), HostBytes: int64(p.got), DirectBytes: int64(p.direct), Retries: p.retries}
	err = p.err
	if q.Sum && err == nil {
		res.Sum = p.crc
	}
	r.releaseSmall(s)
	return err
}

func (r *Ring) readSmall(q *Request, s *smallSlot) {
	p := &s.segment
	r.read(q, p, s.mem)
	if q.Sum {
		p.crc = crc32c.Sum(s.mem[p.at : p.at+p.got])
	}
	if p.got == 0 {
		return
	}
	n := p.got
	if n >= demoteMin {
		if r.crowded(n) {
			cldemote(s.mem[p.at : p.at+n])
		}
		r.copying.Add(int64(n))
		defer r.copying.Add(-int64(n))
	}
	s.copy(q.Addr, s.addr+gpu.Addr(p.at), n, q)
}

func (r *Ring) writeSmall(q *Request, s *smallSlot) {
	p := &s.segment
	s.useFlag = false // behind a copy from the GPU a flag comes late
	if s.copy(s.addr+gpu.Addr(p.at), q.Addr, p.n, q); p.err != nil {
		return
	}
	r.write(q, p, s.mem)
	if q.Sync && p.err == nil {
		if err := r.files.Fdatasync(q.Buffered); err != nil {
			p.err = &Error{"sync", q.Off, q.Len, q.Addr, err}
		}
	}
}

func (s *smallSlot) copy(dst, src gpu.Addr, n int, q *Request) {
	if err := s.move(dst, src, n); err != nil {
		s.segment.got, s.segment.direct = 0, 0
		s.segment.err = &Error{"copy", q.Off, int64(n), q.Addr, err}
	}
}

// move copies and waits.
func (s *smallSlot) move(dst, src gpu.Addr, n int) error {
	marked, err := s.launch(dst, src, uint64(n))
	if err != nil {
		return err
	}
	return s.wait(marked)
}

// await waits for a copy: for its flag, or by the driver.
func (s *smallSlot) wait(marked bool) error {
	if marked && s.flagSeen() {
		return nil
	}
	err := s.stream.Synchronize()
	if err != nil {
		_ = s.stream.Synchronize() // once more, lest the copy outlives the loan of the slot
	}
	return err
}

// launch queues a copy, and the flag behind it where that is how to wait.
func (s *smallSlot) launch(dst, src gpu.Addr, n uint64) (marked bool, err error) {
	if !s.useFlag {
		return false, s.stream.Copy(dst, src, n)
	}
	s.seq++
	if s.copyWriter == nil {
		if err := s.stream.Copy(dst, src, n); err != nil {
			return false, err
		}
		return s.stream.Write(s.flagAddr, uint64(s.seq), 4) == nil, nil
	}
	if s.copyWriter.CopyWrite(dst, src, n, s.flagAddr, s.seq) == nil {
		return true, nil
	}
	// The copy may be under way without its flag.
	if err := s.stream.Copy(dst, src, n); err != nil {
		_ = s.stream.Synchronize()
		return false, err
	}
	return false, nil
}

// flagSpins is how often a flag is looked at, some 50 us: after that the driver
// waits, and says what is wrong. Behind an error the flag never comes.
const flagSpins = 50_000

// seen waits for the flag behind the copy.
func (s *smallSlot) flagSeen() bool {
	for range flagSpins {
		if s.flag.Load() == s.seq {
			return true
		}
	}
	return false
}
