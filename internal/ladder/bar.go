package ladder

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/internal/wc"
	"github.com/culvert-io/culvert/route"
)

// barBudget is how much registered memory is kept mapped. A mapping costs page
// tables (2 MiB per GiB) and 2 ms per GiB to make.
const barBudget = 16 << 30

// CPU stores through BAR1 reach 34 GB/s, with six reads at a time, on an H200 whose
// link carries 55. So six larger reads at a time go through BAR1 and the others use
// the ring: together they move a third more than either alone.
var barLimit = Limit{From: 64 << 10, Reads: 6, Batch: 1 << 20}

// A barRoute reads files into GPU memory with the CPU: the registered buffer is
// mapped through BAR1, and pread copies from the page cache into the mapping.
// No staging, no stream, no CUDA call: for small requests nothing is faster.
//
// CPU stores are not ordered with streams. As with every cuFile read, no GPU work
// may use the range meanwhile; work submitted after the read sees it.
type barRoute struct {
	basic
	dev    gpu.Device
	mapper *rm.Mapper
	link   tune.Subject // this GPU, its driver and the kernel
	learn  *barLearner  // nil if the GPU's crossover is known

	ring  *ringRoute // shares reads with this route; nil if it is switched off
	share Share

	inFlight atomic.Int32 // reads of barLimit.From bytes and more
	maps     table[*rm.Mapping]
}

// barBytes is how much may be mapped with a limit of the settings.
func barBytes(limit uint64) uint64 {
	if limit == 0 {
		return barBudget
	}
	return min(barBudget, limit)
}

// findBar returns the route, or why this machine does not have it.
func findBar(device gpu.Device, os dev.OS, limit uint64, beside *ringRoute) (Route, *route.Decline) {
	m := rm.NewMapper(os, device, barBytes(limit))
	if err := m.Probe(); err != nil {
		m.Close()
		if d := onWSL(route.Bar, os); d != nil {
			return nil, d
		}
		d := decline(route.Bar, "mapping", err.Error(), "")
		if u, ok := errors.AsType[*rm.Unavailable](err); ok {
			d.Test, d.Evidence, d.Fix = u.Test, u.Err.Error(), u.Fix
		}
		return nil, d
	}
	b := &barRoute{dev: device, mapper: m, link: tune.Link(device.Info(), os.FS()), ring: beside}
	if beside != nil {
		b.share = knownShares[device.Info().Name]
		if knownWindows[device.Info().Name] {
			beside.window = b.window
		}
	}
	if unknownCrossover(device.Info()) {
		b.learn = newBarLearner()
	}
	return b, nil
}

var barTexts = [numReasons]*route.Decline{
	badDirection: decline(route.Bar, "direction", "writes are not supported: BAR1 loads are slower than a GPU copy", ""),
	hostMemory:   decline(route.Bar, "buffer", "not device memory", ""),
	unregistered: decline(route.Bar, "buffer", "memory is not a registered buffer", "register the buffer"),
	unprepared:   decline(route.Bar, "buffer", "the registered buffer has no BAR1 mapping", ""),
	notCached:    decline(route.Bar, "page cache", "the range is not in the page cache, which this file must not fill", ""),
	busy:         decline(route.Bar, "load", "BAR1 read limit reached; request used the ring", ""),
	largeBatch:   decline(route.Bar, "batch", "large batch: the ring runs it on several threads", ""),
}

// Traits needs a descriptor that goes through the page cache: O_DIRECT cannot write
// into a mapping of a device.
func (b *barRoute) Traits(src Source) (Traits, *route.Decline) {
	f := src.File()
	if f == nil {
		return Traits{}, needsBuffered(route.Bar, src)
	}
	if f.Buffered() < 0 || !f.Readable() {
		return Traits{}, decline(route.Bar, "descriptor", src.Name()+" cannot be read through the page cache", "open it readable and without O_DIRECT")
	}
	c := b.crossover(f)
	texts := barTexts
	texts[tooLarge] = c.decline()
	return Traits{
		ID: route.Bar, Scope: fmt.Sprintf("reads up to %s into registered buffers (%s)", human.Size(int64(c.Max)), c.source()),
		Reads: true, Registered: true, KeepsMemory: true,
		Max: c.Max, Limit: barLimit, Share: b.share, SinglePread: barLimit.From, texts: &texts,
	}, nil
}

// Register maps a buffer.
func (b *barRoute) Register(span gpu.Span, kind gpu.Kind) {
	if !kind.OnDevice() {
		return
	}
	if w, err := b.mapper.Map(span.Base, span.Len); err == nil {
		b.maps.set(span.Base, w)
	}
}

// Deregister unmaps it.
func (b *barRoute) Deregister(span gpu.Span) {
	if w, ok := b.maps.remove(span.Base); ok {
		w.Close()
	}
}

// Configure changes how much may be mapped.
func (b *barRoute) Configure(set Settings) error {
	b.mapper.SetBudget(barBytes(set.BARLimit))
	return nil
}

// State looks up the mapping of a buffer, the load and, for a read that must not fill it,
// the page cache.
func (b *barRoute) State(op *Op) (s State) {
	if _, ok := b.maps.get(op.Mem.Base); !ok {
		return s
	}
	s.Prepared, s.InFlight = true, b.inFlight.Load()
	if s.Load = s.InFlight; b.ring != nil {
		s.Load += b.ring.calls.Load()
	}
	s.NotCached = sparesCache(op)
	if c := b.learn.class(op.Mem.Len); c != nil {
		s.Learned = c.ask(op)
	}
	return s
}

// sparesCache reports that an op through the page cache would fill it, and must not.
func sparesCache(op *Op) bool {
	return op.file().Reads().Spares(int64(op.Mem.Len)) != storage.NotBypassed && !resident(op)
}

// resident reports whether all of what an op reads is in the page cache.
func resident(op *Op) bool {
	n, err := op.file().Resident(op.Off, int64(op.Mem.Len))
	return err == nil && n >= int64(op.Mem.Len)
}

// Mapping is the BAR1 mapping of a buffer.
func (b *barRoute) Mapping(base gpu.Addr) []byte {
	if w, ok := b.maps.get(base); ok {
		return w.Bytes()
	}
	return nil
}

// Run reads each op with one pread.
func (b *barRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	for i := range ops {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.run(ctx, &ops[i], &res[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *barRoute) run(ctx context.Context, op *Op, r *route.Receipt) error {
	if op.Mem.Len < barLimit.From {
		return b.read(op, 0, r)
	}
	b.inFlight.Add(1)
	defer b.inFlight.Add(-1)
	if op.shared {
		return b.readShared(ctx, op, r)
	}
	return b.read(op, 0, r)
}

// read reads an op but for its first bytes, and adds to its receipt.
func (b *barRoute) read(op *Op, first uint64, r *route.Receipt) error {
	// The buffer stays registered while a transfer uses it, so the mapping needs no
	// lock of its own here.
	w, ok := b.maps.get(op.Mem.Base)
	if !ok {
		return op.failAt(op.Off, " through BAR1", rm.ErrClosed)
	}
	dst := w.Bytes()[op.Mem.Off+first : op.Mem.Off+op.Mem.Len]
	n, err := moveAll(unix.Pread, op.file().Buffered(), dst, op.Off+int64(first), 1, &r.Retries)
	wc.Fence() // also after an error: some bytes may have arrived
	r.Bytes += n
	countCached(op, n, r)
	if err != nil {
		return op.failAt(op.Off+int64(first)+n, " through BAR1", err)
	}
	return nil
}

// countCached counts n bytes of an op that came through the page cache.
func countCached(op *Op, n int64, r *route.Receipt) {
	if op.file().Reads().Spares(int64(op.Mem.Len)) != storage.NotBypassed { // State has looked
		r.Cache.Hit += n
	} else {
		r.Cache.Unasked += n
	}
}

// Close unmaps everything.
func (b *barRoute) Close() error {
	var errs []error
	for _, w := range b.maps.clear() {
		errs = append(errs, w.Close())
	}
	return errors.Join(append(errs, b.mapper.Close())...)
}
