package route

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/human"
)

// Evidence says how a figure is known.
type Evidence uint8

const (
	Counted  Evidence = iota // by us, byte for byte
	Reported                 // by a driver's or library's statistics
	Inferred                 // from what the route does by construction
)

var evidenceNames = [...]string{"counted", "reported", "inferred"}

func (e Evidence) String() string {
	if int(e) < len(evidenceNames) {
		return evidenceNames[e]
	}
	return fmt.Sprintf("Evidence(%d)", uint8(e))
}

// MarshalText makes JSON carry the word.
func (e Evidence) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// A Figure is a number of bytes with its evidence.
type Figure struct {
	Bytes    int64    `json:"bytes"`
	Evidence Evidence `json:"evidence"`
}

// A Receipt says what a transfer did.
type Receipt struct {
	Dir   Dir
	Route ID    // that moved most of the bytes
	Bytes int64 // moved in all
	By    [numIDs]int64
	// Host is how many bytes were written into host memory on the way: 0 for a
	// direct route, Bytes for one staging copy, more when some were staged twice.
	Host Figure
	Head int64 // ragged bytes at the start that took another way than the rest
	Tail int64
	// Holes is how many bytes a direct route found no blocks for on the drive, and
	// cleared in GPU memory instead. They count as moved.
	Holes   int64
	Retries int
	Time    time.Duration
	// Ceiling is how many bytes per second a copy of pinned memory to or from this
	// GPU was last measured to move; 0 where that is not known.
	Ceiling float64
	// Declined holds, for each better rung, why it was not taken.
	Declined Declined
}

// Rate is bytes per second.
func (r *Receipt) Rate() float64 {
	if r.Time <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Time.Seconds()
}

// Share is the rate as a part of the ceiling; 0 where no ceiling is known.
func (r *Receipt) Share() float64 {
	if r.Ceiling <= 0 {
		return 0
	}
	return r.Rate() / r.Ceiling
}

// Add sums another receipt of the same direction into r. Time adds up, so the
// rate of a sum is that of a transfer done one after the other; callers who
// measure a whole set Time themselves.
func (r *Receipt) Add(o *Receipt) {
	r.Dir = o.Dir
	r.Bytes += o.Bytes
	for id, n := range o.By {
		r.By[id] += n
	}
	r.Host.Bytes += o.Host.Bytes
	r.Host.Evidence = max(r.Host.Evidence, o.Host.Evidence)
	r.Head += o.Head
	r.Tail += o.Tail
	r.Holes += o.Holes
	r.Retries += o.Retries
	r.Time += o.Time
	r.Ceiling = max(r.Ceiling, o.Ceiling)
	r.settle()
	for id, d := range o.Declined {
		if d != nil {
			r.Declined[id] = d
		}
	}
}

// Declined is indexed by route: nil where a rung was not declined.
type Declined [numIDs]*Decline

// List is the declines, best rung first.
func (ds *Declined) List() []*Decline {
	list := []*Decline{}
	for _, d := range ds {
		if d != nil {
			list = append(list, d)
		}
	}
	return list
}

// settle names the route that moved most of the bytes.
func (r *Receipt) settle() {
	for id := range r.By {
		if r.By[id] > r.By[r.Route] || r.Route == None {
			r.Route = ID(id)
		}
	}
	if r.By[r.Route] == 0 {
		r.Route = None
	}
}

// String is one line of key=value, made to be grepped.
func (r Receipt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s route=%s bytes=%d host_bytes=%d(%s) time=%s rate=%s",
		r.Dir, r.Route, r.Bytes, r.Host.Bytes, r.Host.Evidence, r.Time.Round(time.Microsecond/10), human.Rate(r.Rate()))
	if s := r.Share(); s > 0 {
		fmt.Fprintf(&b, " share=%.3g", s)
	}
	if by := r.byRoute(); len(by) > 1 {
		fmt.Fprintf(&b, " by=%s", by)
	}
	if r.Head+r.Tail > 0 {
		fmt.Fprintf(&b, " ragged=%d+%d", r.Head, r.Tail)
	}
	if r.Holes > 0 {
		fmt.Fprintf(&b, " holes=%d", r.Holes)
	}
	if r.Retries > 0 {
		fmt.Fprintf(&b, " retries=%d", r.Retries)
	}
	for i, d := range r.Declined.List() {
		b.WriteString([2]string{" declined=", ","}[min(i, 1)])
		b.WriteString(d.Route.String() + ":" + strings.ReplaceAll(d.Test, " ", "-"))
	}
	return b.String()
}

// byRoute lists the routes that moved something.
type byRoute []routeBytes

type routeBytes struct {
	id ID
	n  int64
}

func (r *Receipt) byRoute() byRoute {
	var by byRoute
	for id, n := range r.By {
		if n > 0 {
			by = append(by, routeBytes{ID(id), n})
		}
	}
	return by
}

func (by byRoute) String() string {
	parts := make([]string, len(by))
	for i, e := range by {
		parts[i] = fmt.Sprintf("%s:%d", e.id, e.n)
	}
	return strings.Join(parts, ",")
}

// MarshalJSON is the receipt's stable form.
func (r Receipt) MarshalJSON() ([]byte, error) {
	by := map[string]int64{}
	for _, e := range r.byRoute() {
		by[e.id.String()] = e.n
	}
	return json.Marshal(struct {
		Dir      Dir              `json:"direction"`
		Route    ID               `json:"route"`
		Bytes    int64            `json:"bytes"`
		By       map[string]int64 `json:"bytes_by_route"`
		Host     Figure           `json:"host_bytes"`
		Head     int64            `json:"ragged_head"`
		Tail     int64            `json:"ragged_tail"`
		Holes    int64            `json:"hole_bytes,omitempty"`
		Retries  int              `json:"retries"`
		Seconds  float64          `json:"seconds"`
		GBps     float64          `json:"gb_per_second"`
		Share    float64          `json:"share_of_ceiling,omitempty"`
		Declined []*Decline       `json:"declined"`
	}{r.Dir, r.Route, r.Bytes, by, r.Host, r.Head, r.Tail, r.Holes, r.Retries, r.Time.Seconds(), r.Rate() / 1e9, r.Share(), r.Declined.List()})
}
