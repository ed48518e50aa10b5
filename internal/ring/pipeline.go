package ring

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/internal/uring"
)

// A pipeline is a stream and some slots: while one slot is copied, the next is read.
// It belongs to one goroutine at a time.
type pipeline struct {
	dev       gpu.Device
	log       *slog.Logger
	sched     *scheduler
	files     *fileIO
	copies    *copyQueue
	windows   *windowReads
	poll      *poller
	coalescer *coalescer
	noUring   bool

	stream   gpu.Stream
	slots    []slot
	idle     []*slot // the one used first is taken first: the others' memory may still be in a core's own cache
	inFlight []*slot // in the order of the stream

	// Each is made when it is first needed.
	staging    gpu.Addr    // on the GPU, for coalesced requests
	uring      *uring.Ring // nil if there is none
	done       []uring.Done
	triedUring bool

	trace tracer
}

// A slot is a range of pinned memory and the chunk in it.
type slot struct {
	addr   gpu.Addr
	mem    []byte
	copied gpu.Event

	batch     *batch
	segments  []segment
	write     bool
	coalesced bool          // the segments are small requests
	queued    bool          // copied was recorded
	bytes     int64         // in the stream's queue
	launched  time.Duration // for a trace
}

func (r *Ring) newPipeline() (*pipeline, error) {
	stream, err := r.dev.NewStream()
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	p := &pipeline{
		dev: r.dev, log: r.log, sched: &r.sched, files: &r.files, copies: &r.copies, windows: &r.windows, poll: &r.poll, coalescer: &r.coalescer, noUring: r.noUring,
		stream: stream, slots: make([]slot, r.sizing.depth),
	}
	size := r.sizing.slotBytes()
	addr, mem, err := r.pool.alloc(int64(len(p.slots)) * size)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	for i := range p.slots {
		s := &p.slots[i]
		off := int64(i) * size
		s.addr, s.mem = addr+gpu.Addr(off), mem[off:off+size]
		if s.copied, err = r.dev.NewEvent(); err != nil {
			return nil, errors.Join(fmt.Errorf("ring: %w", err), p.close())
		}
		p.idle = append(p.idle, s)
	}
	return p, nil
}

// close frees everything but the slots' memory, which the pool owns.
func (p *pipeline) close() error {
	var err error
	if p.uring != nil {
		err = p.uring.Close()
	}
	for i := range p.slots {
		if e := p.slots[i].copied; e != nil {
			err = errors.Join(err, e.Close())
		}
	}
	if p.staging != 0 {
		err = errors.Join(err, p.dev.Free(p.staging))
	}
	return errors.Join(err, p.stream.Close())
}

// start processes the chunk in s: it reads a read and queues its copy, unless the read
// went through a window, or queues a write's copy.
func (p *pipeline) start(s *slot) {
	s.write = s.batch.reqs[s.segments[0].req].Write
	s.bytes, s.queued = 0, false
	began := time.Now()
	p.trace.begin()
	if !s.write && !p.readWindow(s) { // which may have waited for the disk all the same
		p.read(s)
		n := s.filled()
		p.trace.end(trace.Read, s.fileOff(), n)
		s.demote(p.copies, n)
		if n >= rateLen {
			ended := time.Now()
			p.sched.readRate.Add(int64(n), ended.Sub(began))
			p.files.observe(s, int64(n), began, ended)
		}
	}
	s.launched = p.trace.begin()
	p.launch(s)
	p.inFlight = append(p.inFlight, s)
	p.copies.Add(s.bytes)
}

// filled is how many bytes the segments contain.
func (s *slot) filled() (n int) {
	for i := range s.segments {
		n += s.segments[i].got
	}
	return n
}

// demote pushes a short chunk out of the core's own cache. What a disk has written
// is in no core's cache.
func (s *slot) demote(copies *copyQueue, n int) {
	if n > demoteMax || !copies.behind(n) {
		return
	}
	for i := range s.segments {
		if seg := &s.segments[i]; seg.direct == 0 {
			cldemote(s.mem[seg.at : seg.at+seg.got])
		}
	}
}

// A copyQueue counts the bytes that all streams have queued for copies, except
// small requests below demoteMin.
type copyQueue struct{ atomic.Int64 }

const (
	// demoteMin and demoteMax are the smallest and the largest chunk that is pushed
	// out of a core's own cache, and demoteQueue how many copies of its size must be
	// queued.
	demoteMin   = 32 << 10
	demoteMax   = 1 << 20
	demoteQueue = 2
)

// behind reports whether a copy of n bytes will wait for others. Only then is it
// worth CPU time to make it shorter.
func (c *copyQueue) behind(n int) bool { return c.Load() >= demoteQueue*int64(n) }

// launch queues a slot's copies, except those that are queued already, or not needed.
func (p *pipeline) launch(s *slot) {
	if s.coalesced && len(s.segments) >= minScatter && p.launchCoalesced(s) {
		return
	}
	for i := range s.segments {
		p.send(s, &s.segments[i])
	}
	p.record(s)
}

// send queues the copy of one segment.
func (p *pipeline) send(s *slot, seg *segment) {
	n := seg.n
	if !s.write {
		n = seg.got
	}
	if n == 0 || seg.sent {
		return
	}
	host, dev := s.addr+gpu.Addr(seg.at), s.batch.reqs[seg.req].Addr+gpu.Addr(seg.off)
	dst, src := dev, host
	if s.write {
		dst, src = host, dev
	}
	if err := p.stream.Copy(dst, src, uint64(n)); err != nil {
		s.copyFailed(seg, err)
		return
	}
	seg.sent = true
	s.bytes += int64(n)
}

// record marks the end of the slot's copies.
func (p *pipeline) record(s *slot) {
	if s.bytes == 0 {
		return
	}
	if err := p.stream.Record(s.copied); err != nil {
		// Without an event only the stream's end says that the slot is free.
		s.allFailed(errors.Join(err, p.stream.Synchronize()))
		return
	}
	s.queued = true
}

// finish waits for the oldest slot's copies, writes a write to its file, and makes
// the slot idle.
func (p *pipeline) finish() {
	s := p.inFlight[0]
	copy(p.inFlight, p.inFlight[1:])
	p.inFlight = p.inFlight[:len(p.inFlight)-1]
	if s.queued {
		p.trace.begin()
		if err := p.wait(s); err != nil {
			s.allFailed(errors.Join(err, p.stream.Synchronize()))
		}
		p.trace.waited(s)
	}
	p.copies.Add(-s.bytes)
	if s.write {
		p.trace.begin()
		for i := range s.segments {
			if seg := &s.segments[i]; seg.err == nil {
				p.files.write(&s.batch.reqs[seg.req], seg, s.mem)
			}
		}
		p.trace.end(trace.Write, s.fileOff(), s.filled())
	}
	p.sched.complete(s)
	s.batch, s.segments = nil, s.segments[:0]
	p.idle = append(p.idle, s)
}

// reap finishes the slots whose copies are done.
func (p *pipeline) reap() {
	for len(p.inFlight) > 0 {
		if s := p.inFlight[0]; s.queued {
			if done, _ := s.copied.Done(); !done {
				return
			}
		}
		p.finish()
	}
}

const (
	// maxSpin is how many bytes may be queued while the driver waits, which spins.
	// Behind a longer queue, a pipeline without idle slots loses nothing by
	// sleeping, and the core is free meanwhile.
	maxSpin = 8 << 20
	nap     = 50 * time.Microsecond
)

func (p *pipeline) wait(s *slot) error {
	if done, err := p.poll.wait(s); done || err != nil {
		return err
	}
	for len(p.idle) == 0 && p.copies.Load() > maxSpin {
		if done, err := s.copied.Done(); done || err != nil {
			return err
		}
		ts := unix.NsecToTimespec(int64(nap))
		_ = unix.Nanosleep(&ts, nil) // if interrupted, it only polls earlier
	}
	return s.copied.Synchronize()
}

func (s *slot) copyFailed(seg *segment, err error) {
	q := &s.batch.reqs[seg.req]
	seg.got, seg.direct = 0, 0
	seg.err = &Error{"copy", q.Off + seg.off, int64(seg.n), q.Addr + gpu.Addr(seg.off), err}
}

func (s *slot) allFailed(err error) {
	for i := range s.segments {
		if seg := &s.segments[i]; seg.err == nil || seg.got > 0 {
			s.copyFailed(seg, err)
		}
	}
}
