package route

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/enum"
	"github.com/culvert-io/culvert/internal/human"
)

// Evidence says how a byte count is known.
type Evidence uint8

const (
	Counted  Evidence = iota // by Culvert, byte for byte
	Reported                 // by a driver's or library's statistics
	Inferred                 // from what the route does by construction
)

var evidenceNames = [...]string{"counted", "reported", "inferred"}

func (e Evidence) String() string { return enum.Name(evidenceNames[:], e, "Evidence(%d)") }

// MarshalText encodes the evidence as its name.
func (e Evidence) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// A ByteCount is a number of bytes and how it is known.
type ByteCount struct {
	Bytes    int64    `json:"bytes"`
	Evidence Evidence `json:"evidence"`
}

// ByRoute is bytes per route, indexed by ID.
type ByRoute [numIDs]int64

// Most is the route that moved most of the bytes; the better one of two that moved
// the same, and None if nothing was moved.
func (by *ByRoute) Most() ID {
	most := None
	for id, n := range by {
		if n > by[most] {
			most = ID(id)
		}
	}
	return most
}

// A Receipt is the record of one transfer.
type Receipt struct {
	Dir     Dir
	Route   ID      // that moved most of the bytes
	Machine Machine // on which it ran
	// Provider moved the bytes between hosts: "ibverbs", "tcp" or "soft"; "" if they
	// did not leave this one.
	Provider string
	// Registration is how a network adapter reached GPU memory, and on what evidence that way
	// was chosen; "" if none did.
	Registration string
	// Origin is what the transfer took from an object store; zero for files.
	Origin Origin
	Bytes  int64 // moved in all
	By     ByRoute
	// Host counts the bytes written to host memory: 0 for a direct route, Bytes for
	// one staging copy, more if some were staged twice.
	Host ByteCount
	// Arrival says how it is known that the bytes of a direct route arrived.
	Arrival Arrival
	// Head and Tail are the unaligned bytes at the start and the end that took
	// another route than the rest.
	Head, Tail int64
	// Holes counts the bytes for which a direct route found no blocks on the drive.
	// They were cleared in GPU memory and count as moved.
	Holes   int64
	Cache   CacheUse // what reads did to the page cache
	Retries int
	Time    time.Duration
	// Ceiling is the pinned-copy rate last measured on this GPU, in bytes per
	// second; 0 if unknown.
	Ceiling float64
	// Declined says, for each better route, why it was not used.
	Declined Declined
}

// Rate is bytes per second.
func (r *Receipt) Rate() float64 {
	if r.Time <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Time.Seconds()
}

// Share is the rate divided by the pinned-copy rate; 0 if that is unknown.
func (r *Receipt) Share() float64 {
	if r.Ceiling <= 0 {
		return 0
	}
	return r.Rate() / r.Ceiling
}

// Add adds another receipt of the same direction to r. Times are added as well, so
// the rate of a sum is that of consecutive transfers; callers who time a whole set
// Time themselves.
func (r *Receipt) Add(o *Receipt) {
	r.Dir = o.Dir
	r.Machine = max(r.Machine, o.Machine)
	r.Provider = cmp.Or(o.Provider, r.Provider)
	r.Registration = cmp.Or(o.Registration, r.Registration)
	r.Origin.Add(&o.Origin)
	r.Bytes += o.Bytes
	for id, n := range o.By {
		r.By[id] += n
	}
	r.Host.Bytes += o.Host.Bytes
	r.Host.Evidence = max(r.Host.Evidence, o.Host.Evidence)
	r.Arrival = r.Arrival.weaker(o.Arrival)
	r.Head += o.Head
	r.Tail += o.Tail
	r.Holes += o.Holes
	r.Cache.Add(&o.Cache)
	r.Retries += o.Retries
	r.Time += o.Time
	r.Ceiling = max(r.Ceiling, o.Ceiling)
	r.Route = r.By.Most()
	for id, d := range o.Declined {
		if d != nil {
			r.Declined[id] = d
		}
	}
}

// String formats the receipt as one line of key=value fields.
func (r Receipt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s route=%s bytes=%d host_bytes=%d(%s) time=%s rate=%s",
		r.Dir, r.Route, r.Bytes, r.Host.Bytes, r.Host.Evidence, r.Time.Round(time.Microsecond/10), human.Rate(r.Rate()))
	if s := r.Share(); s > 0 {
		fmt.Fprintf(&b, " share=%.3g", s)
	}
	if r.Arrival != NotDirect {
		fmt.Fprintf(&b, " arrival=%s", r.Arrival)
	}
	if r.Machine != UnknownMachine {
		fmt.Fprintf(&b, " machine=%s", r.Machine)
	}
	if r.Provider != "" {
		fmt.Fprintf(&b, " provider=%s", r.Provider)
	}
	if r.Registration != "" {
		fmt.Fprintf(&b, " registration=%q", r.Registration)
	}
	if r.Origin.Store != "" {
		fmt.Fprintf(&b, " %s", r.Origin)
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
	if c := &r.Cache; c.Hit+c.Filled+c.Bypassed > 0 {
		fmt.Fprintf(&b, " cache=hit:%d,filled:%d,bypassed:%d", c.Hit, c.Filled, c.Bypassed)
		if c.Why != "" {
			fmt.Fprintf(&b, "(%s)", strings.ReplaceAll(c.Why, " ", "-"))
		}
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

// byRoute lists the routes that moved data.
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

// MarshalJSON encodes the receipt. Its keys do not change between versions.
func (r Receipt) MarshalJSON() ([]byte, error) {
	by := map[string]int64{}
	for _, e := range r.byRoute() {
		by[e.id.String()] = e.n
	}
	return json.Marshal(struct {
		Dir          Dir              `json:"direction"`
		Route        ID               `json:"route"`
		Machine      Machine          `json:"machine"`
		Provider     string           `json:"provider,omitempty"`
		Registration string           `json:"registration,omitempty"`
		Origin       Origin           `json:"origin,omitzero"`
		Bytes        int64            `json:"bytes"`
		By           map[string]int64 `json:"bytes_by_route"`
		Host         ByteCount        `json:"host_bytes"`
		Arrival      Arrival          `json:"arrival,omitempty"`
		Head         int64            `json:"ragged_head"`
		Tail         int64            `json:"ragged_tail"`
		Holes        int64            `json:"hole_bytes,omitempty"`
		Cache        CacheUse         `json:"page_cache,omitzero"`
		Retries      int              `json:"retries"`
		Seconds      float64          `json:"seconds"`
		GBps         float64          `json:"gb_per_second"`
		Share        float64          `json:"share_of_ceiling,omitempty"`
		Declined     []*Decline       `json:"declined"`
	}{r.Dir, r.Route, r.Machine, r.Provider, r.Registration, r.Origin, r.Bytes, by, r.Host, r.Arrival, r.Head, r.Tail, r.Holes, r.Cache, r.Retries, r.Time.Seconds(), r.Rate() / 1e9, r.Share(), r.Declined.List()})
}
