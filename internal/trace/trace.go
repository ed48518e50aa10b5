// Package trace records transfers and their pieces, and writes them as Chrome trace
// events, which Perfetto and Chrome show.
//
// Nothing is recorded unless a command has started it. Then [Buffer.Use] is one load
// and a comparison. A recorder has a limit of events, and counts what it dropped.
package trace

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/route"
)

// A Transfer is one call of the data path: a request, or a batch of them. It is small,
// because a program can make a million of them a second.
type Transfer struct {
	File        string
	Off         int64 // of the first request
	Begin, End  time.Duration
	Bytes, Host int64
	By          *route.ByRoute // nil if all bytes took Route
	Requests    int32
	GPU         int32
	Dir         route.Dir
	Route       route.ID
	Failed      bool
}

// Add adds a receipt.
func (t *Transfer) Add(r *route.Receipt) {
	t.Bytes += r.Bytes
	t.Host += r.Host.Bytes
	if t.By == nil && r.By[r.Route] == r.Bytes && (t.Bytes == r.Bytes || t.Route == r.Route) {
		t.Route = r.Route
		return
	}
	if t.By == nil {
		t.By = new(route.ByRoute)
		t.By[t.Route] = t.Bytes - r.Bytes
	}
	for id, n := range r.By {
		t.By[id] += n
	}
	t.Route = t.By.Most()
}

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

// A Recorder collects what the process moves.
type Recorder struct {
	began   time.Time
	left    atomic.Int64 // events that may still be recorded
	dropped atomic.Int64

	mu      sync.Mutex
	buffers []*Buffer
}

// MaxEvents is how many events a recorder keeps: at most 80 MB of memory, and 200 MB of the file.
const MaxEvents = 1 << 20

// current is the recorder of the process; nil if nothing is recorded.
var current atomic.Pointer[Recorder]

// Start begins to record what the process moves, until Stop. It replaces an earlier
// recorder.
func Start() *Recorder { return start(MaxEvents) }

func start(events int64) *Recorder {
	r := &Recorder{began: time.Now()}
	r.left.Store(events)
	current.Store(r)
	return r
}

// Stop ends recording. Transfers must have ended.
func (r *Recorder) Stop() { current.CompareAndSwap(r, nil) }

// On reports whether something is recorded.
func On() bool { return current.Load() != nil }

// A Buffer collects events of one goroutine at a time.
type Buffer struct {
	rec       *Recorder
	transfers list[Transfer]
	pieces    list[Piece]
	room      int64 // events that the recorder has granted
}

// A list grows without moving what it has.
type list[T any] struct {
	full [][]T
	last []T
}

func (l *list[T]) add(x T) {
	if len(l.last) == cap(l.last) {
		if l.last != nil {
			l.full = append(l.full, l.last)
		}
		l.last = make([]T, 0, grantUnit)
	}
	l.last = append(l.last, x)
}

func (l *list[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, part := range append(l.full[:len(l.full):len(l.full)], l.last) {
			for _, x := range part {
				if !yield(x) {
					return
				}
			}
		}
	}
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
	return r.newBuffer()
}

func (r *Recorder) newBuffer() *Buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &Buffer{rec: r}
	r.buffers = append(r.buffers, b)
	return b
}

// Now is the time since the recorder was started.
func (b *Buffer) Now() time.Duration { return time.Since(b.rec.began) }

// Transfer records a transfer.
func (b *Buffer) Transfer(t Transfer) {
	if b.grant() {
		b.transfers.add(t)
	}
}

// Piece records a piece.
func (b *Buffer) Piece(p Piece) {
	if b.grant() {
		b.pieces.add(p)
	}
}

// grantUnit is how many events a buffer asks for at a time, so that buffers seldom
// touch a shared cache line.
const grantUnit = 256

// grant reports whether one more event may be recorded.
func (b *Buffer) grant() bool {
	if b.room == 0 {
		b.room = b.rec.take(grantUnit)
	}
	if b.room == 0 {
		b.rec.dropped.Add(1)
		return false
	}
	b.room--
	return true
}

// take grants up to n events.
func (r *Recorder) take(n int64) int64 {
	for {
		left := r.left.Load()
		got := min(n, left)
		if got == 0 || r.left.CompareAndSwap(left, left-got) {
			return got
		}
	}
}
