package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/culvert-io/culvert/route"
)

// An event is one of the Chrome trace event format.
type event struct {
	Name  string  `json:"name"`
	Cat   string  `json:"cat,omitempty"`
	Phase string  `json:"ph"`
	TS    float64 `json:"ts"` // microseconds
	Dur   float64 `json:"dur,omitempty"`
	PID   int     `json:"pid"`
	TID   int     `json:"tid"`
	Args  any     `json:"args,omitempty"`
}

// transferArgs are what is known about a transfer beside its time.
type transferArgs struct {
	File     string           `json:"file"`
	GPU      int32            `json:"gpu"`
	Off      int64            `json:"offset"`
	Requests int32            `json:"requests"`
	Bytes    int64            `json:"bytes"`
	Host     int64            `json:"host_bytes"`
	Route    string           `json:"route"`
	By       map[string]int64 `json:"by_route"`
	Failed   bool             `json:"failed,omitempty"`
}

type pieceArgs struct {
	Off   int64 `json:"offset"`
	Bytes int64 `json:"bytes"`
}

type nameArgs struct {
	Name string `json:"name"`
}

type indexArgs struct {
	Index int `json:"sort_index"`
}

// Write writes what was recorded, after Stop. baseTimeNanoseconds is the time of day
// at which ts is 0, under the name that PyTorch's profiler uses, so that both can be
// shown in one picture.
func (r *Recorder) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `{"displayTimeUnit":"ns","baseTimeNanoseconds":%d,"otherData":{"producer":"culvert","dropped_events":"%d"},"traceEvents":[`,
		r.began.UnixNano(), r.dropped.Load())
	e := emitter{out: out, pid: os.Getpid()}
	e.meta("process_name", 0, nameArgs{filepath.Base(os.Args[0])})
	e.transfers(r.collect())
	for k := range numKinds {
		e.pieces(k, r.piecesOf(k))
	}
	if e.err != nil {
		return e.err
	}
	fmt.Fprintln(out, "\n]}")
	return out.Flush()
}

// Dropped is how many events were not recorded, because there were too many.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

func (r *Recorder) collect() (list []Transfer) {
	for _, b := range r.buffers {
		list = slices.AppendSeq(list, b.transfers.all())
	}
	slices.SortStableFunc(list, func(a, b Transfer) int { return cmp.Compare(a.Begin, b.Begin) })
	return list
}

func (r *Recorder) piecesOf(k Kind) (list []Piece) {
	for _, b := range r.buffers {
		for p := range b.pieces.all() {
			if p.Kind == k {
				list = append(list, p)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Piece) int { return cmp.Compare(a.Begin, b.Begin) })
	return list
}

// An emitter writes events. What overlaps is put on tracks of its own: goroutines have
// no numbers that a reader would know.
type emitter struct {
	out   *bufio.Writer
	pid   int
	some  bool // an event was written
	last  int  // track that was made last
	err   error
	lanes []lane
}

// A lane is a track of events that do not overlap.
type lane struct {
	tid int
	end time.Duration
}

// track returns a track that is free from begin to end. Events come by their beginning.
func (e *emitter) track(name string, begin, end time.Duration) int {
	for i := range e.lanes {
		if l := &e.lanes[i]; l.end <= begin {
			l.end = end
			return l.tid
		}
	}
	e.last++
	e.lanes = append(e.lanes, lane{e.last, end})
	e.meta("thread_name", e.last, nameArgs{fmt.Sprintf("%s %d", name, len(e.lanes))})
	e.meta("thread_sort_index", e.last, indexArgs{e.last})
	return e.last
}

func (e *emitter) transfers(list []Transfer) {
	e.lanes = nil
	for i := range list {
		t := &list[i]
		e.span(t.Dir.String()+" "+filepath.Base(t.File), "transfer", e.track("transfers", t.Begin, t.End), t.Begin, t.End, transferArgs{
			File: t.File, GPU: t.GPU, Off: t.Off, Requests: t.Requests, Bytes: t.Bytes, Host: t.Host,
			Route: t.Route.String(), By: t.byRoute(), Failed: t.Failed,
		})
	}
}

// byRoute has the bytes of each route that moved some.
func (t *Transfer) byRoute() map[string]int64 {
	by := map[string]int64{}
	if t.By == nil && t.Bytes > 0 {
		by[t.Route.String()] = t.Bytes
	}
	if t.By != nil {
		for id, n := range t.By {
			if n > 0 {
				by[route.ID(id).String()] = n
			}
		}
	}
	return by
}

func (e *emitter) pieces(k Kind, list []Piece) {
	e.lanes = nil
	for _, p := range list {
		e.span(k.String(), "piece", e.track(k.String(), p.Begin, p.End), p.Begin, p.End, pieceArgs{p.Off, p.Bytes})
	}
}

func (e *emitter) span(name, cat string, tid int, begin, end time.Duration, args any) {
	e.write(event{Name: name, Cat: cat, Phase: "X", TS: micros(begin), Dur: micros(end - begin), PID: e.pid, TID: tid, Args: args})
}

func (e *emitter) meta(name string, tid int, args any) {
	e.write(event{Name: name, Phase: "M", PID: e.pid, TID: tid, Args: args})
}

func (e *emitter) write(ev event) {
	text, err := json.Marshal(ev)
	if e.err = cmp.Or(e.err, err); e.err != nil {
		return
	}
	if e.some {
		_ = e.out.WriteByte(',') // Flush reports errors
	}
	e.some = true
	_ = e.out.WriteByte('\n')
	_, _ = e.out.Write(text)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
