package ladder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A sourceRoute has the device of a DirectSource move the bytes. Unaligned ends, and
// what the device does not reach of a buffer, go through host memory.
type sourceRoute struct {
	basic
	id   route.ID
	dev  gpu.Device
	ends *hostRoute

	texts *[numReasons]*route.Decline

	mu      sync.Mutex
	buffers map[gpu.Addr]gpu.Span // registered, by base
	maps    map[reachKey]*reach
}

type reachKey struct {
	src  DirectSource
	base gpu.Addr
}

// A reach is what the device of a source reaches of a registered buffer.
type reach struct {
	span gpu.Span
	why  *route.Decline // it reaches nothing
}

func newSourceRoute(id route.ID, dev gpu.Device) *sourceRoute {
	return &sourceRoute{
		id: id, dev: dev, ends: newHost(dev),
		buffers: map[gpu.Addr]gpu.Span{}, maps: map[reachKey]*reach{},
		texts: &[numReasons]*route.Decline{
			hostMemory:   decline(id, "buffer", "not device memory", ""),
			unregistered: decline(id, "buffer", "memory is not a registered buffer", "register the buffer"),
			unprepared:   decline(id, "buffer", "the device does not reach all of the registered buffer", "use addresses and sizes that are multiples of 64 KiB"),
			noWholeBlock: decline(id, "alignment", "request contains no whole block of the source", ""),
			partialBlock: decline(id, "alignment", "the request is not in whole blocks of the source", "use whole blocks, or do not require the route: unaligned ends then use another"),
			phase:        decline(id, "alignment", "the memory address is not aligned as the device needs it", "use a multiple of 4"),
		},
	}
}

// registrationFix is what to do if a device cannot be given a buffer.
var registrationFix = [...]string{
	route.NVMe: "docs/nvme.md lists what each transport needs",
	route.RDMA: "culvert check lists NICs and what they need",
}

// Traits describes the device of the source. It is not for sources without one.
func (s *sourceRoute) Traits(src Source) (Traits, *route.Decline) {
	d, ok := directSource(src, s.id)
	if !ok {
		return Traits{}, nil
	}
	block, _ := d.Alignment()
	return Traits{ID: s.id, Direct: true, Reads: true, Writes: true, Registered: true, Block: block, texts: s.texts}, nil
}

// State says whether the device reaches the memory of an op. A buffer is mapped for a
// source when both first meet. That can wait for streams, so an op that a stream waits
// for maps nothing.
func (s *sourceRoute) State(op *Op) State {
	src, ok := directSource(op.Src, s.id)
	if !ok || op.Buf == nil {
		return State{}
	}
	r := s.reach(src, op)
	if r == nil || r.why != nil {
		return State{Prepared: r != nil, Learned: learnedFrom(r)}
	}
	_, align := src.Alignment()
	c := s.cut(src, op, r, op.end())
	return State{
		Prepared:   !c.empty() && (!op.strict || c == cut{op.Off, op.end(), op.end()}),
		Misaligned: (uint64(op.Mem.Addr())+uint64(c.from-op.Off))%align != 0,
	}
}

func learnedFrom(r *reach) *route.Decline {
	if r == nil {
		return nil
	}
	return r.why
}

// reach is what the device reaches of the buffer of an op; nil if that is not known.
func (s *sourceRoute) reach(src DirectSource, op *Op) *reach {
	key := reachKey{src, op.Mem.Base}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.maps[key]; ok {
		return r
	}
	buf, ok := s.buffers[op.Mem.Base]
	if !ok || op.InStream {
		return nil
	}
	r := &reach{}
	var err error
	if r.span, err = src.Map(s.dev, buf); err != nil {
		r.why = s.cannotMap(err)
	}
	s.watch(src)
	s.maps[key] = r
	return r
}

func (s *sourceRoute) cannotMap(err error) *route.Decline {
	return decline(s.id, "registration", err.Error(), registrationFix[s.id])
}

// Try maps memory of its own: only that can tell whether the device reaches the GPU.
func (s *sourceRoute) Try(src Source) *route.Decline {
	d, ok := directSource(src, s.id)
	if !ok {
		return elsewhere(s.id)
	}
	const n = 128 << 10 // at any address it contains a page of the GPU
	a, err := s.dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		return nil
	}
	defer s.dev.Free(a)
	buf := gpu.Span{Dev: s.dev.Info().Index, Base: a, Len: n}
	if _, err := d.Map(s.dev, buf); err != nil {
		return s.cannotMap(err)
	}
	if err := d.Unmap(buf); err != nil {
		return s.cannotMap(err)
	}
	return nil
}

// watch forgets a source that is closed. It is called with mu held.
func (s *sourceRoute) watch(src DirectSource) {
	for k := range s.maps {
		if k.src == src {
			return
		}
	}
	src.OnClose(func() { _ = s.unmap(func(k reachKey) bool { return k.src == src }) })
}

// unmap ends the use of buffers that are chosen by their keys.
func (s *sourceRoute) unmap(which func(reachKey) bool) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.maps {
		if !which(k) {
			continue
		}
		if r.why == nil {
			err = errors.Join(err, k.src.Unmap(s.buffers[k.base]))
		}
		delete(s.maps, k)
	}
	return err
}

// Register remembers a buffer. It is mapped when a source needs it.
func (s *sourceRoute) Register(span gpu.Span, kind gpu.Kind) {
	if !kind.OnDevice() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffers[span.Base] = span
}

// Deregister unmaps a buffer from all sources. One that was freed is gone already.
func (s *sourceRoute) Deregister(span gpu.Span) {
	_ = s.unmap(func(k reachKey) bool { return k.base == span.Base }) // Deregister returns no error
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.buffers, span.Base)
}

// Run moves one op after the other.
func (s *sourceRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	for i := range ops {
		if err := s.run(ctx, &ops[i], &res[i]); err != nil {
			return s.explain(ctx, ops[i:], &res[i], err)
		}
	}
	return nil
}

// run moves the head, the middle and the tail of an op.
func (s *sourceRoute) run(ctx context.Context, op *Op, r *route.Receipt) error {
	src, ok := directSource(op.Src, s.id)
	if !ok {
		return fmt.Errorf("%s: %w", op.Src.Name(), errNotServed)
	}
	to := s.reach(src, op)
	if to == nil || to.why != nil {
		return fmt.Errorf("%s: %w", op.Src.Name(), errNotServed)
	}
	end, err := sourceEnd(src, op)
	if err != nil {
		return err
	}
	r.Host.Evidence = route.Inferred
	c := s.cut(src, op, to, end)
	if c.empty() {
		c.from, c.to = end, end
	}
	if r.Head, err = s.staged(ctx, op, r, op.Off, c.from); err != nil || op.Off+r.Bytes < c.from {
		return err
	}
	if c.from < c.to {
		n, err := src.Move(ctx, op.Dir, op.Mem.Slice(uint64(c.from-op.Off), uint64(c.to-c.from)), c.from)
		r.Bytes += n
		r.By[s.id] += n
		if err != nil || c.from+n < c.to {
			return err
		}
	}
	r.Tail, err = s.staged(ctx, op, r, c.to, end)
	return err
}

var errNotServed = errors.New("the device does not reach this memory")

// sourceEnd is where an op ends: a read ends with the source.
func sourceEnd(src DirectSource, op *Op) (int64, error) {
	if op.Dir == route.Write {
		return op.end(), nil
	}
	size, err := src.Size()
	return max(op.Off, min(op.end(), size)), err
}

// cut is the part of an op up to end that the device moves: whole blocks, in memory that
// it reaches.
func (s *sourceRoute) cut(src DirectSource, op *Op, r *reach, end int64) cut {
	block, _ := src.Alignment()
	b := int64(max(block, 1))
	near := op.Off + int64(r.span.Addr()) - int64(op.Mem.Addr()) // of what is reached
	from, to := max(op.Off, near), min(end, near+int64(r.span.Len))
	return cut{(from + b - 1) / b * b, to / b * b, end}
}

// staged moves [from, to) of the source through host memory.
func (s *sourceRoute) staged(ctx context.Context, op *Op, r *route.Receipt, from, to int64) (int64, error) {
	if from >= to {
		return 0, nil
	}
	part, did := *op, make([]route.Receipt, 1)
	part.Off, part.Mem = from, op.Mem.Slice(uint64(from-op.Off), uint64(to-from))
	err := s.ends.Run(ctx, []Op{part}, did)
	n := did[0].Bytes
	r.Bytes += n
	r.By[route.Host] += n
	r.Host.Bytes += n
	return n, err
}

// explain passes ops on to the next route, which finds out whether the source or only
// its device has failed. If no other may take them, it is an error.
func (s *sourceRoute) explain(ctx context.Context, ops []Op, r *route.Receipt, err error) error {
	op := &ops[0]
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return err
	}
	if op.strict {
		return op.failAt(op.Off+r.Bytes, " by route "+s.id.String(), err)
	}
	if aerr := checkAllocated(ops[:1], 0); aerr != nil {
		return aerr
	}
	return toNextRoute(s.id, ops, "transfer", err)
}

// Close unmaps all buffers.
func (s *sourceRoute) Close() error {
	return errors.Join(s.unmap(func(reachKey) bool { return true }), s.ends.Close())
}
