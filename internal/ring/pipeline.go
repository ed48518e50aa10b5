package ring

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/uring"
)

// A lane is a stream and some slots: what it takes to work on pieces. It
// belongs to one goroutine at a time.
type pipeline struct {
	r        *Ring
	stream   gpu.Stream
	slots    []slot
	idle     []*slot // the first one used is the first one taken: the others' memory may still be in a core's own cache
	inFlight []*slot // in the order of the stream

	// Each made on first use.
	staging    gpu.Addr    // on the GPU, for gathered requests
	uring      *uring.Ring // for these and for halves; nil where there is none
	done       []uring.Done
	triedUring bool // to make batch
}

// A slot is a stretch of pinned memory and the piece in it.
type slot struct {
	addr   gpu.Addr
	mem    []byte
	copied gpu.Event

	op       *batch
	segments []segment
	write    bool
	// gathered says that the parts are small requests, side by side.
	coalesced bool
	queued    bool  // copied was recorded
	bytes     int64 // in the stream's queue
}

func (r *Ring) newPipeline() (*pipeline, error) {
	stream, err := r.dev.NewStream()
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	l := &pipeline{r: r, stream: stream, slots: make([]slot, r.sizing.depth)}
	addr, mem, err := r.pool.alloc(int64(r.sizing.depth) * r.sizing.slotBytes())
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	for i := range l.slots {
		s := &l.slots[i]
		off := int64(i) * r.sizing.slotBytes()
		s.addr, s.mem = addr+gpu.Addr(off), mem[off:off+r.sizing.slotBytes()]
		if s.copied, err = r.dev.NewEvent(); err != nil {
			return nil, errors.Join(fmt.Errorf("ring: %w", err), l.close())
		}
		l.idle = append(l.idle, s)
	}
	return l, nil
}

// close gives all back but the slots' memory, which is the pool's.
func (l *pipeline) close() error {
	var err error
	if l.uring != nil {
		err = l.uring.Close()
	}
	for i := range l.slots {
		if e := l.slots[i].copied; e != nil {
			err = errors.Join(err, e.Close())
		}
	}
	if l.staging != 0 {
		err = errors.Join(err, l.r.dev.Free(l.staging))
	}
	return errors.Join(err, l.stream.Close())
}

// start begins the piece in s, which take has filled: a read is read and its
// copy launched, a write's copy is launched.
func (l *pipeline) start(s *slot) {
	s.write = s.op.reqs[s.segments[0].req].Write
	s.bytes, s.queued = 0, false
	if !s.write {
		began := time.Now()
		l.read(s)
		s.demote(l.r)
		l.r.readRate.add(s.filled(), time.Since(began))
	}
	l.launch(s)
	l.inFlight = append(l.inFlight, s)
	l.r.copying.Add(s.bytes)
}

// hint tells the processor about a short piece. What a disk has put there lies in
// no core's cache.
func (s *slot) demote(r *Ring) {
	if n := s.filled(); n > demoteMax || !r.crowded(n) {
		return
	}
	for i := range s.segments {
		if p := &s.segments[i]; p.direct == 0 {
			cldemote(s.mem[p.at : p.at+p.got])
		}
	}
}

// crowded reports whether a copy of n bytes will wait for others. Only then is
// it worth the caller's time to make it shorter.
func (r *Ring) crowded(n int) bool { return r.copying.Load() >= demoteQueue*int64(n) }

// launch queues the copies of a slot, as far as they are not under way already.
func (l *pipeline) launch(s *slot) {
	if s.coalesced && len(s.segments) >= minScatter && l.launchCoalesced(s) {
		return
	}
	for i := range s.segments {
		l.send(s, &s.segments[i])
	}
	l.record(s)
}

// send queues the copy of one part.
func (l *pipeline) send(s *slot, p *segment) {
	n := p.n
	if !s.write {
		n = p.got
	}
	if n == 0 || p.sent {
		return
	}
	host, dev := s.addr+gpu.Addr(p.at), s.op.reqs[p.req].Addr+gpu.Addr(p.off)
	dst, src := dev, host
	if s.write {
		dst, src = host, dev
	}
	if err := l.stream.Copy(dst, src, uint64(n)); err != nil {
		s.copyFailed(p, err)
		return
	}
	p.sent = true
	s.bytes += int64(n)
}

// record marks the end of the slot's copies.
func (l *pipeline) record(s *slot) {
	if s.bytes == 0 {
		return
	}
	if err := l.stream.Record(s.copied); err != nil {
		// Without a mark only the stream's end says that the slot is free.
		s.allFailed(errors.Join(err, l.stream.Synchronize()))
		return
	}
	s.queued = true
}

// finish waits for the copies of the oldest slot, writes it out if that is what
// it is for, and gives it back.
func (l *pipeline) finish() {
	s := l.inFlight[0]
	copy(l.inFlight, l.inFlight[1:])
	l.inFlight = l.inFlight[:len(l.inFlight)-1]
	if s.queued {
		if err := l.wait(s); err != nil {
			s.allFailed(errors.Join(err, l.stream.Synchronize()))
		}
	}
	l.r.copying.Add(-s.bytes)
	if s.write {
		l.write(s)
	}
	l.r.complete(s)
	s.op, s.segments = nil, s.segments[:0]
	l.idle = append(l.idle, s)
}

// reap finishes what needs no waiting.
func (l *pipeline) reap() {
	for len(l.inFlight) > 0 {
		if s := l.inFlight[0]; s.queued {
			if done, _ := s.copied.Done(); !done {
				return
			}
		}
		l.finish()
	}
}

const (
	// patience is how much may lie in the queues of all streams while waiting is
	// still left to the driver, which spins. Behind a longer queue a lane whose
	// slots are all on their way loses nothing by sleeping, and the core is
	// somebody else's meanwhile.
	patience = 8 << 20
	nap      = 50 * time.Microsecond
)

func (l *pipeline) wait(s *slot) error {
	for len(l.idle) == 0 && l.r.copying.Load() > patience {
		if done, err := s.copied.Done(); done || err != nil {
			return err
		}
		ts := unix.NsecToTimespec(int64(nap))
		_ = unix.Nanosleep(&ts, nil) // woken early, it asks early
	}
	return s.copied.Synchronize()
}

func (s *slot) copyFailed(p *segment, err error) {
	q := &s.op.reqs[p.req]
	p.got, p.direct = 0, 0
	p.err = &Error{"copy", q.Off + p.off, int64(p.n), q.Addr + gpu.Addr(p.off), err}
}

func (s *slot) allFailed(err error) {
	for i := range s.segments {
		if p := &s.segments[i]; p.err == nil || p.got > 0 {
			s.copyFailed(p, err)
		}
	}
}
