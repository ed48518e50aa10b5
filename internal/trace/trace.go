// Package trace records transfers and their pieces, and writes them as Chrome trace
// events, which Perfetto and Chrome show.
//
// Nothing is recorded unless it was started. Then [Buffer.On] is one load and a
// comparison. A record has 64 bytes in memory that is ready before it is needed, has no
// pointers, and takes no reading of the clock that the transfer does not take anyway, so
// that small reads can be recorded, too. A recorder has a limit of records, and counts
// what it dropped.
package trace

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/route"
)

// Now is the time since the process started: one reading of the clock, where
// time.Now takes two.
func Now() time.Duration { return time.Since(began) }

var began = time.Now()

// A Kind is what a piece of a transfer does: one step of a chunk.
type Kind uint8

// The kinds.
const (
	Read  Kind = iota // storage to host memory
	Write             // host memory to storage
	Copy              // between host and GPU memory, from the end of the copy before it
	Wait              // for a copy
	numKinds
)

var kindNames = [numKinds]string{"read", "write", "copy", "wait"}

func (k Kind) String() string { return kindNames[k] }

// A Piece is a part of a staged transfer.
type Piece struct {
	Kind       Kind
	Begin, End time.Duration
	Off, Bytes int64 // of the file
}

// A Call is a call of the data path: a request, or a batch of them.
type Call struct {
	File   *FileRef
	Named  Named // asked for a name once
	Off    int64 // of the first request
	Begin  time.Duration
	End    time.Duration
	Turn   time.Duration // when a request that is moved in two steps began the second; 0 if unknown
	GPU    int
	Dir    route.Dir
	Failed bool
}

// Named is a file that has a name.
type Named interface{ Name() string }

// A FileRef is what a recorder knows a file by. The zero value is of no recorder.
type FileRef struct{ id atomic.Uint64 } // generation of the recorder, and number

// A Recorder collects what the process moves.
type Recorder struct {
	generation uint64
	full       atomic.Bool
	dropped    atomic.Int64

	mu    sync.Mutex
	left  int // records that may still be granted
	slab  []Record
	store store
	names []string
}

// MaxEvents is how many records a recorder keeps: 64 MiB of memory, and up to 300 MB of the file.
const MaxEvents = 1 << 20

// grantUnit is how many records a buffer asks for at a time, so that buffers seldom
// touch a shared cache line.
const grantUnit = 256

var (
	// current is the recorder of the process; nil if nothing is recorded.
	current     atomic.Pointer[Recorder]
	generations atomic.Uint64
)

// Start begins to record what the process moves, until Stop. It replaces an earlier
// recorder.
func Start() *Recorder { return start(MaxEvents, &memory{}) }

// StartIn is Start with records in files of a directory, which outlive the process:
// [Collect] reads them.
func StartIn(dir string) (*Recorder, error) {
	f, err := newFiles(dir)
	if err != nil {
		return nil, err
	}
	return start(MaxEvents, f), nil
}

// StartRun has a process of "culvert run --trace" record its transfers, once. If that
// fails, the command misses them.
var StartRun = sync.OnceFunc(func() {
	if dir := env.Get("CULVERT_TRACE_DIR"); dir != "" && !On() {
		_, _ = StartIn(dir)
	}
})

func start(events int, s store) *Recorder {
	r := &Recorder{generation: generations.Add(1), left: events, store: s}
	r.slab, _ = s.grow() // it fails again, and counts, when records come
	current.Store(r)
	return r
}

// Stop ends recording. Transfers must have ended.
func (r *Recorder) Stop() { current.CompareAndSwap(r, nil) }

// Close frees the memory of a recorder that was stopped.
func (r *Recorder) Close() error {
	r.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slab = nil
	return r.store.close()
}

// On reports whether something is recorded.
func On() bool { return current.Load() != nil }

// Dropped is how many records were not kept, because there were too many.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// A Buffer collects records of one goroutine at a time. The zero value is of no recorder.
type Buffer struct {
	rec        *Recorder
	generation uint64 // of rec: what a record needs is in few cache lines
	used       int    // of room. A slice that moved on would cost a write barrier
	room       []Record
}

// On reports whether something is recorded. Then the buffer is the recorder's.
func (b *Buffer) On() bool {
	r := current.Load()
	return r != nil && (b.rec == r || b.join(r))
}

func (b *Buffer) join(r *Recorder) bool {
	*b = Buffer{rec: r, generation: r.generation}
	return true
}

// One is the record of a call of one request that took one route and ended without an error,
// as most do, or nil if the call needs [Buffer.Transfer]. It and the methods that fill the
// record are small enough to be inlined: calling a function that is not in the cache of
// instructions costs as much as the record.
func (b *Buffer) One(f *FileRef, r *route.Receipt, err error) *Record {
	if err != nil || f.id.Load()>>32 != b.generation || b.used >= len(b.room) || r.By[r.Route] != r.Bytes {
		return nil
	}
	b.used++
	return &b.room[b.used-1]
}

// Span sets when the request ended and, if it was moved in two steps, when the second began.
func (rec *Record) Span(r *route.Receipt, end, turn time.Duration) *Record {
	begin := max(0, end-r.Time)
	rec.begin, rec.end, rec.turn = int64(begin), int64(end), uint32(max(turn-begin, 0))
	return rec
}

// Place sets what was read or written.
func (rec *Record) Place(f *FileRef, gpu int, off int64) *Record {
	rec.file, rec.gpu, rec.off, rec.requests = uint32(f.id.Load()), int32(gpu), off, 1
	return rec
}

// Publish sets what was moved, and completes the record.
func (rec *Record) Publish(r *route.Receipt) {
	rec.bytes, rec.host = r.Bytes, r.Host.Bytes
	rec.tag = uint64(kindRead) + uint64(r.Dir) | uint64(r.Route)<<8
}

// Transfer records a call and its receipts: behind the record, one for each route.
func (b *Buffer) Transfer(c *Call, res []route.Receipt) {
	var by route.ByRoute
	var bytes, host int64
	for i := range res {
		bytes, host = bytes+res[i].Bytes, host+res[i].Host.Bytes
		for id, n := range res[i].By {
			by[id] += n
		}
	}
	if !b.hasRoom(1 + len(by)) {
		return
	}
	rec := b.next()
	b.fill(rec, c)
	rec.bytes, rec.host = bytes, host
	for id, n := range by { // before the call is published
		if n > 0 {
			share := b.next()
			share.bytes = n
			share.publish(tag{kind: kindShare, route: uint8(id)})
		}
	}
	t := tagOf(c, by.Most(), len(res))
	t.flags |= flagShares
	rec.publish(t)
}

func (b *Buffer) fill(rec *Record, c *Call) {
	id := c.File.id.Load()
	if id>>32 != b.generation {
		id = b.rec.name(c)
	}
	rec.begin, rec.end, rec.off = int64(c.Begin), int64(c.End), c.Off
	rec.turn, rec.file = uint32(max(c.Turn-c.Begin, 0)), uint32(id)
}

// name gives a file a number.
func (r *Recorder) name(c *Call) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.generation<<32 | uint64(len(r.names))
	name := c.Named.Name()
	r.names = append(r.names, name)
	r.store.name(name)
	c.File.id.Store(id)
	return id
}

// Piece records a piece.
func (b *Buffer) Piece(p Piece) {
	if !b.hasRoom(1) {
		return
	}
	rec := b.next()
	rec.begin, rec.end, rec.off, rec.bytes = int64(p.Begin), int64(p.End), p.Off, p.Bytes
	rec.publish(tag{kind: kindPiece + uint8(p.Kind)})
}

// next is the next free record of those that hasRoom has found.
func (b *Buffer) next() *Record {
	b.used++
	return &b.room[b.used-1]
}

// hasRoom reports whether there is room for n records, and makes some if it can.
func (b *Buffer) hasRoom(n int) bool {
	if b.used+n <= len(b.room) {
		return true
	}
	if !b.rec.full.Load() {
		if room := b.rec.take(); len(room) >= n {
			b.room, b.used = room, 0 // records that are left stay unused
			return true
		}
	}
	b.rec.dropped.Add(1)
	return false
}

// take grants records.
func (r *Recorder) take() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.slab) == 0 && r.left > 0 {
		var err error
		if r.slab, err = r.store.grow(); err != nil {
			r.left = 0
		}
	}
	n := min(grantUnit, r.left, len(r.slab))
	if n == 0 {
		r.full.Store(true)
		return nil
	}
	room := r.slab[:n]
	r.slab, r.left = r.slab[n:], r.left-n
	return room
}

// process is what was recorded, after Stop.
func (r *Recorder) process() *process {
	p := ownProcess()
	p.Dropped = r.dropped.Load()
	p.names = r.names
	r.store.slabs(p.decode)
	return p
}

var errNoRoom = errors.New("no memory for records")
