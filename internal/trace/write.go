package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
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
	Requests uint32           `json:"requests"`
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

// Write writes what was recorded, after Stop.
func (r *Recorder) Write(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return write(w, []*process{r.process()})
}

// Collect writes what all processes of a run recorded in a directory, also those that
// were killed. processes are those that moved something.
func Collect(w io.Writer, dir string) (processes int, err error) {
	list, err := collect(dir)
	if err != nil {
		return 0, err
	}
	list = slices.DeleteFunc(list, func(p *process) bool { return len(p.transfers) == 0 })
	return len(list), write(w, list)
}

// Beginning is how each trace begins.
const Beginning = `{"displayTimeUnit":"ns","baseTimeNanoseconds":`

// write writes processes on one clock. baseTimeNanoseconds is the time of day at which ts
// is 0, under the name that PyTorch's profiler uses, so that both can be shown in one
// picture.
func write(w io.Writer, list []*process) error {
	var base, dropped int64
	for i, p := range list {
		if i == 0 || p.Base < base {
			base = p.Base
		}
		dropped += p.Dropped
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, Beginning+`%d,"otherData":{"producer":"culvert","dropped_events":"%d"},"traceEvents":[`, base, dropped)
	e := emitter{out: out}
	for _, p := range list {
		e.process(p, time.Duration(p.Base-base))
	}
	if e.err != nil {
		return e.err
	}
	fmt.Fprintln(out, "\n]}")
	return out.Flush()
}

// An emitter writes events. What overlaps is put on tracks of its own: goroutines have
// no numbers that a reader would know.
type emitter struct {
	out   *bufio.Writer
	pid   int
	shift time.Duration // of the clock of the process
	some  bool          // an event was written
	last  int           // track that was made last
	err   error
	lanes []lane
}

// A lane is a track of events that do not overlap.
type lane struct {
	tid int
	end time.Duration
}

func (e *emitter) process(p *process, shift time.Duration) {
	e.pid, e.shift, e.last = p.PID, shift, 0
	e.meta("process_name", 0, nameArgs{p.Command})
	byTime := func(a, b Piece) int { return cmp.Compare(a.Begin, b.Begin) }
	slices.SortStableFunc(p.transfers, func(a, b transfer) int { return byTime(a.Piece, b.Piece) })
	e.transfers(p)
	for k := range numKinds {
		slices.SortStableFunc(p.pieces[k], byTime)
		e.pieces(k, p.pieces[k])
	}
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

func (e *emitter) transfers(p *process) {
	e.lanes = nil
	for i := range p.transfers {
		t := &p.transfers[i]
		name, dir := "unknown", route.Read
		if int(t.file) < len(p.names) {
			name = p.names[t.file]
		}
		if t.write {
			dir = route.Write
		}
		e.span(dir.String()+" "+filepath.Base(name), "transfer", e.track("transfers", t.Begin, t.End), t.Begin, t.End, transferArgs{
			File: name, GPU: t.gpu, Off: t.Off, Requests: t.requests, Bytes: t.Bytes, Host: t.host,
			Route: t.route.String(), By: byRoute(&t.by), Failed: t.failed,
		})
	}
}

// byRoute has the bytes of each route that moved some.
func byRoute(by *route.ByRoute) map[string]int64 {
	m := map[string]int64{}
	for id, n := range by {
		if n > 0 {
			m[route.ID(id).String()] = n
		}
	}
	return m
}

func (e *emitter) pieces(k Kind, list []Piece) {
	e.lanes = nil
	for _, p := range list {
		e.span(k.String(), "piece", e.track(k.String(), p.Begin, p.End), p.Begin, p.End, pieceArgs{p.Off, p.Bytes})
	}
}

func (e *emitter) span(name, cat string, tid int, begin, end time.Duration, args any) {
	e.write(event{Name: name, Cat: cat, Phase: "X", TS: micros(begin + e.shift), Dur: micros(end - begin), PID: e.pid, TID: tid, Args: args})
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

func ns(n int64) time.Duration { return time.Duration(n) }

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
