package cufile

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/route"
)

// Stats sums transfers.
type Stats struct {
	Reads      int64         `json:"reads"`
	Writes     int64         `json:"writes"`
	Errors     int64         `json:"errors"`
	ReadBytes  int64         `json:"read_bytes"`
	WriteBytes int64         `json:"write_bytes"`
	HostBytes  int64         `json:"host_bytes"`
	Retries    int64         `json:"retries"`
	Time       time.Duration `json:"nanoseconds"` // summed over transfers, of which many may run at a time
	Routes     []RouteStats  `json:"routes"`      // those that were taken, best first
}

// RouteStats is the part of one route.
type RouteStats struct {
	Route      route.ID `json:"route"`
	Reads      int64    `json:"reads"`
	Writes     int64    `json:"writes"`
	ReadBytes  int64    `json:"read_bytes"`
	WriteBytes int64    `json:"write_bytes"`
}

// process holds the sums of all transfers of this process, where the command
// culvert stats finds them. It is made by the first transfer.
var process = sync.OnceValue(func() *stats.Process { return stats.New(route.Names()) })

// sums are a file's receipts, added up.
type sums struct {
	attach sync.Once
	open   atomic.Pointer[stats.File]
	final  atomic.Pointer[stats.Totals] // when the file is closed

	described atomic.Int32 // route of the description + 1; 0 if there is none
	changes   atomic.Int32 // of the description
}

// add counts a transfer to or from mem, which took d.
func (s *sums) add(f *File, shard uint32, r *route.Receipt, mem gpu.Span, d time.Duration, err error) {
	in := s.open.Load()
	if in == nil {
		in = s.begin(f)
	}
	in.Add(shard, &stats.Transfer{
		Write: r.Dir == route.Write, Route: int(r.Route), Bytes: r.By[r.Route], Host: r.Host.Bytes,
		Retries: r.Retries, Time: d, Failed: err != nil && uint64(r.Bytes) < mem.Len,
	})
	if s.described.Load() != int32(r.Route)+1 && r.Bytes > 0 {
		s.describe(in, r, mem)
	}
	if r.By[r.Route] == r.Bytes {
		return
	}
	for id, moved := range r.By {
		if moved != 0 && route.ID(id) != r.Route {
			in.AddBytes(shard, r.Dir == route.Write, id, moved)
		}
	}
}

// maxDescriptions bounds the cost for a file whose transfers alternate between
// routes.
const maxDescriptions = 16

// describe tells readers of the statistics why the file's transfers take their
// route. It runs when the route changes, not for each transfer.
func (s *sums) describe(in *stats.File, r *route.Receipt, mem gpu.Span) {
	s.described.Store(int32(r.Route) + 1)
	if s.changes.Add(1) > maxDescriptions {
		return
	}
	lines := make([]string, 0, len(r.Declined))
	for _, d := range r.Declined.List() {
		lines = append(lines, d.String())
	}
	process().Describe(in, stats.Description{GPU: mem.Dev, Ceiling: r.Ceiling, Declined: strings.Join(lines, "\n")})
}

func (s *sums) begin(f *File) *stats.File {
	s.attach.Do(func() {
		p := process()
		if err := p.Err(); err != nil {
			f.drv.log.Debug("cufile: statistics stay in this process", "error", err)
		}
		s.open.Store(p.Attach(f.Name()))
	})
	return s.open.Load()
}

// end is called when no transfer can come any more.
func (s *sums) end() {
	if in := s.open.Load(); in != nil {
		t := process().Detach(in)
		s.final.Store(&t)
	}
}

func (s *sums) stats() Stats {
	if t := s.final.Load(); t != nil {
		return statsOf(t)
	}
	if in := s.open.Load(); in != nil {
		t := in.Totals()
		return statsOf(&t)
	}
	return Stats{}
}

func statsOf(t *stats.Totals) Stats {
	s := Stats{Errors: t.Errors, HostBytes: t.Host, Retries: t.Retries, Time: t.Time}
	s.Reads, s.ReadBytes = t.Sum(false)
	s.Writes, s.WriteBytes = t.Sum(true)
	for id := range t.Ops[0] {
		r := RouteStats{route.ID(id), t.Ops[0][id], t.Ops[1][id], t.Bytes[0][id], t.Bytes[1][id]}
		if r != (RouteStats{Route: route.ID(id)}) {
			s.Routes = append(s.Routes, r)
		}
	}
	return s
}
