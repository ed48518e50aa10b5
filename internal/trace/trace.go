// Package trace records transfers and their pieces, and writes them as Chrome trace
// events, which Perfetto and Chrome show.
//
// Nothing is recorded unless it was started. Then [Buffer.Use] is one load and a
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

// A Kind is what a piece of a transfer does.
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
	slab  []record
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

// A Buffer collects records of one goroutine at a time.
type Buffer struct {
	rec  *Recorder
	room []record // granted and not used
}

// Use returns the buffer to record in: nil if nothing is recorded, b if it is the
// recorder's, or a new one, which the caller keeps for the next call.
func (b *Buffer) Use() *Buffer {
	r := current.Load()
	if r == nil {
		return nil
	}
	if b != nil && b.rec == r {
		return b
	}
	return &Buffer{rec: r}
}

// One records a call of one request that took one route, and ended without an error: most
// calls do, and its parameters fit into registers. It reports whether this is one.
func (b *Buffer) One(f *FileRef, r *route.Receipt, gpu int, off int64, end, turn time.Duration) bool {
	id := f.id.Load()
	if r.By[r.Route] != r.Bytes || id>>32 != b.rec.generation || len(b.room) == 0 {
		return false
	}
	rec := &b.room[0]
	b.room = b.room[1:]
	begin := max(0, end-r.Time)
	rec.begin, rec.end, rec.off = int64(begin), int64(end), off
	rec.bytes, rec.host = r.Bytes, r.Host.Bytes
	rec.turn, rec.file = uint32(max(turn-begin, 0)), uint32(id)
	rec.requests, rec.gpu = 1, int32(gpu)
	rec.tag = uint64(kindRead) + uint64(r.Dir) | uint64(r.Route)<<8
	return true
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
	if len(b.room) < 1+len(by) && !b.grant(1+len(by)) {
		return
	}
	rec := &b.room[0]
	b.room = b.room[1:]
	b.fill(rec, c)
	rec.bytes, rec.host = bytes, host
	for id, n := range by { // before the call is published
		if n > 0 {
			b.room[0].bytes = n
			b.room[0].publish(tag{kind: kindShare, route: uint8(id)})
			b.room = b.room[1:]
		}
	}
	t := tagOf(c, by.Most(), len(res))
	t.flags |= flagShares
	rec.publish(t)
}

func (b *Buffer) fill(rec *record, c *Call) {
	id := c.File.id.Load()
	if id>>32 != b.rec.generation {
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
	if len(b.room) == 0 && !b.grant(1) {
		return
	}
	rec := &b.room[0]
	b.room = b.room[1:]
	rec.begin, rec.end, rec.off, rec.bytes = int64(p.Begin), int64(p.End), p.Off, p.Bytes
	rec.publish(tag{kind: kindPiece + uint8(p.Kind)})
}

// grant makes room for n records, and reports whether there is.
func (b *Buffer) grant(n int) bool {
	if !b.rec.full.Load() {
		if room := b.rec.take(); len(room) >= n {
			b.room = room // records that are left stay unused
			return true
		}
	}
	b.rec.dropped.Add(1)
	return false
}

// take grants records.
func (r *Recorder) take() []record {
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
