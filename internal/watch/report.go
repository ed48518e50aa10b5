package watch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/route"
)

// A Report is what all processes of a run did through cuFile.
type Report struct {
	Program []string `json:"program"`
	Engine  string   `json:"engine"`  // "culvert" or "nvidia"
	Library string   `json:"library"` // the libcufile that did the work
	// Machine is that of the program. NVIDIA's library has no software machine.
	Machine   route.Machine `json:"machine"`
	Status    int           `json:"status"` // as a shell reports it
	Seconds   float64       `json:"seconds"`
	Processes []Process     `json:"processes"`
	Files     []File        `json:"files"`
	Failures  []Failure     `json:"failures,omitempty"` // calls that failed, by function and code
	Faults    []string      `json:"faults,omitempty"`   // injected faults that came about
	Notes     []string      `json:"notes,omitempty"`    // why there is nothing, or not more, to report
}

// A Process is one that made a record.
type Process struct {
	PID     int64  `json:"pid"`
	Command string `json:"command"`
	Calls   int64  `json:"calls"`
}

// A File is what was done to one file.
type File struct {
	Path     string       `json:"path"`
	ODirect  bool         `json:"o_direct"`
	Read     Direction    `json:"read"`
	Write    Direction    `json:"write"`
	Routes   []RouteBytes `json:"routes,omitempty"`
	Host     int64        `json:"host_bytes"`
	Evidence string       `json:"evidence"` // how routes and host bytes are known
	// DirectShare is the share of the bytes that did not pass through host memory;
	// -1 if it is not known.
	DirectShare float64  `json:"direct_share"`
	Declined    []string `json:"declined,omitempty"` // why better routes were not used
	Errors      []Code   `json:"errors,omitempty"`
}

// RouteBytes are the bytes that a route moved.
type RouteBytes struct {
	Route string `json:"route"`
	Bytes int64  `json:"bytes"`
}

// A Direction is the reads or the writes of a file.
type Direction struct {
	Calls  int64            `json:"calls"`
	Bytes  int64            `json:"bytes"`
	Failed int64            `json:"failed"`
	Short  int64            `json:"short"`       // moved less than was asked for
	Async  int64            `json:"async"`       // of the calls, those of batches and streams; their time and bytes are not in here
	Asked  int64            `json:"async_bytes"` // what those asked for
	Sizes  map[string]int64 `json:"sizes,omitempty"`
	P50    float64          `json:"p50_us"`
	P95    float64          `json:"p95_us"`
	P99    float64          `json:"p99_us"`

	raw rawDirection
}

// A Code is an errno or a code of cuFile.
type Code struct {
	Code    int32  `json:"code"`
	Meaning string `json:"meaning"`
	Count   int64  `json:"count"`
}

// A Failure is a function that ended with a code.
type Failure struct {
	Function string `json:"function"`
	Code
}

// Meaning explains a code: cuFile's are 5000 and more, the others the system's.
func Meaning(code int32) string {
	if code >= int32(cufile.DriverNotInitialized) {
		return cufile.Code(code).Name()
	}
	return fmt.Sprintf("%s: %s", unix.ErrnoName(unix.Errno(code)), unix.Errno(code).Error())
}

// addRecord adds the record of a process.
func (r *Report) addRecord(rec *rawRecord) {
	r.Processes = append(r.Processes, Process{rec.PID, text(rec.Command[:]), rec.Calls})
	for i := range rec.Files {
		f := &rec.Files[i]
		if f.Used == 0 || f.Dir[0].Calls+f.Dir[1].Calls == 0 && i == 0 {
			continue
		}
		name := text(f.Path[:])
		if i == 0 {
			name = otherFiles
		}
		to := r.file(name)
		to.ODirect = to.ODirect || f.Direct != 0
		to.Read.raw.add(&f.Dir[0])
		to.Write.raw.add(&f.Dir[1])
		to.Read.Asked += f.Asked[0]
		to.Write.Asked += f.Asked[1]
		for _, c := range f.Codes {
			if c.Code != 0 {
				same := func(x Code) bool { return x.Code == c.Code }
				entry(&to.Errors, same, Code{c.Code, Meaning(c.Code), 0}).Count += c.Count
			}
		}
	}
	for _, f := range rec.Failures {
		if f.Ready == 0 || f.Count == 0 {
			continue
		}
		name := text(f.Function[:])
		same := func(x Failure) bool { return x.Function == name && x.Code.Code == f.Code }
		entry(&r.Failures, same, Failure{name, Code{f.Code, Meaning(f.Code), 0}}).Count += f.Count
	}
}

// entry is the element of a list that is the same, a new one if there is none.
func entry[T any](list *[]T, same func(T) bool, fresh T) *T {
	i := slices.IndexFunc(*list, same)
	if i < 0 {
		*list = append(*list, fresh)
		i = len(*list) - 1
	}
	return &(*list)[i]
}

func (d *rawDirection) add(o *rawDirection) {
	d.Calls, d.Bytes, d.Failed = d.Calls+o.Calls, d.Bytes+o.Bytes, d.Failed+o.Failed
	d.Cut, d.Nanos, d.Async = d.Cut+o.Cut, d.Nanos+o.Nanos, d.Async+o.Async
	for i, n := range o.Sizes {
		d.Sizes[i] += n
	}
	for i, n := range o.Times {
		d.Times[i] += n
	}
}

// file is the entry of a path.
func (r *Report) file(path string) *File {
	return entry(&r.Files, func(f File) bool { return f.Path == path }, File{Path: path, DirectShare: -1})
}

// otherFiles is the name of those for which there was no room.
const otherFiles = "(other files)"

// addStats adds the routes that a process of Culvert's library used.
func (r *Report) addStats(s *stats.Snapshot) {
	rest := s.Totals
	for i := range s.Files {
		from := &s.Files[i]
		name := r.whole(from.Name)
		r.addRoutes(s.Routes, name, &from.Totals)
		rest.Subtract(&from.Totals)
		to := r.file(name)
		for line := range strings.Lines(from.Declined) {
			if line = strings.TrimSpace(line); line != "" && !slices.Contains(to.Declined, line) {
				to.Declined = append(to.Declined, line)
			}
		}
	}
	if moved := func(b [stats.Routes]int64) bool { return slices.Max(b[:]) > 0 }; moved(rest.Bytes[0]) || moved(rest.Bytes[1]) {
		r.addRoutes(s.Routes, otherFiles, &rest)
	}
}

// whole is the path of a file by its name in the statistics, which have the beginning of a
// long one. Records have more of it. If several files begin so, the name stays. A file for
// which the records had no room is one of the others, as its calls are.
func (r *Report) whole(name string) string {
	var paths []string
	crowded := false
	for i := range r.Files {
		f := &r.Files[i]
		if f.Path == name || len(name) == stats.MaxName && strings.HasPrefix(f.Path, name) {
			paths = append(paths, f.Path)
		}
		crowded = crowded || f.Path == otherFiles && f.Read.raw.Calls+f.Write.raw.Calls > 0
	}
	switch {
	case len(paths) == 1:
		return paths[0]
	case len(paths) == 0 && crowded:
		return otherFiles
	}
	return name
}

// addRoutes adds what was moved in a file. Counters of a process that runs are not of one
// moment, so what is left of them may be less than nothing.
func (r *Report) addRoutes(routes []string, path string, n *stats.Totals) {
	to := r.file(path)
	to.Evidence = route.Counted.String()
	to.Host += max(n.Host, 0)
	for dir := range n.Bytes {
		for id, bytes := range n.Bytes[dir] {
			if bytes > 0 {
				same := func(b RouteBytes) bool { return b.Route == routes[id] }
				entry(&to.Routes, same, RouteBytes{routes[id], 0}).Bytes += bytes
			}
		}
	}
}

// finish computes what follows from the sums, and brings lists into an order that does
// not depend on when processes started.
func (r *Report) finish() {
	slices.SortFunc(r.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(r.Failures, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Code.Code, b.Code.Code))
	})
	slices.Sort(r.Faults)
	for i := range r.Files {
		f := &r.Files[i]
		f.Read.finish()
		f.Write.finish()
		slices.SortFunc(f.Routes, func(a, b RouteBytes) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Route, b.Route))
		})
		var moved int64
		for _, b := range f.Routes {
			moved += b.Bytes
		}
		if moved > 0 {
			f.DirectShare = 1 - float64(min(f.Host, moved))/float64(moved)
		}
	}
}

func (d *Direction) finish() {
	w := &d.raw
	d.Calls, d.Bytes, d.Failed, d.Short, d.Async = w.Calls, w.Bytes, w.Failed, w.Cut, w.Async
	for i, n := range w.Sizes {
		if n > 0 {
			if d.Sizes == nil {
				d.Sizes = map[string]int64{}
			}
			d.Sizes[fmt.Sprint(int64(1)<<i)] = n
		}
	}
	d.P50, d.P95, d.P99 = w.percentile(50), w.percentile(95), w.percentile(99)
}

// percentile is the upper end, in µs, of the class of durations in which the p-th part
// of all ends. Classes are a quarter of a power of two wide.
func (d *rawDirection) percentile(p int64) float64 {
	var all, seen int64
	for _, n := range d.Times {
		all += n
	}
	for i, n := range d.Times {
		if seen += n; n > 0 && seen*100 >= all*p {
			return float64(classEnd(i)) / float64(time.Microsecond)
		}
	}
	return 0
}

// classEnd is the duration in ns at which a class ends.
func classEnd(i int) int64 {
	high, quarter := i/4, int64(i%4)
	if high < 2 {
		return int64(1) << (high + 1)
	}
	return int64(1)<<high + (quarter+1)<<(high-2)
}

// infer says what is known of routes that no library counted: NVIDIA's.
func (r *Report) infer(nvfs bool) {
	if r.Engine != "nvidia" {
		return
	}
	for i := range r.Files {
		f := &r.Files[i]
		moved := f.Read.Bytes + f.Read.Asked + f.Write.Bytes + f.Write.Asked
		switch {
		case f.Evidence != "" || moved == 0:
		case nvfs:
			f.Evidence = "nvidia-fs counts for the whole machine only: see /proc/driver/nvidia-fs/stats"
		default:
			f.Evidence = route.Inferred.String()
			f.Routes, f.Host, f.DirectShare = []RouteBytes{{"compat", moved}}, moved, 0
			f.Declined = []string{"nvidia-fs: not loaded: NVIDIA's library stages in host memory, unless use_pci_p2pdma is set in cufile.json"}
		}
	}
}

// explain adds notes about what cannot be seen in the record.
func (r *Report) explain(linked string) {
	var calls int64
	for _, p := range r.Processes {
		calls += p.Calls
	}
	switch {
	case len(r.Processes) == 0 && len(r.Notes) > 0: // they have no record
	case len(r.Processes) == 0 && linked != "":
		r.Notes = append(r.Notes, linked)
	case len(r.Processes) == 0:
		r.Notes = append(r.Notes, "no process loaded the libraries: a program with more rights than its caller, or one that clears LD_PRELOAD, cannot be watched")
	case calls == 0 && linked != "":
		r.Notes = append(r.Notes, linked)
	case calls == 0:
		r.Notes = append(r.Notes, "no process called cuFile: the program works without it, loads a libcufile by its path, or works as another user")
	}
	if slices.ContainsFunc(r.Files, func(f File) bool { return f.Path == otherFiles }) {
		r.Notes = append(r.Notes, "(other files) sums up files for which a process had no room, which is for the transfers of 127 and the routes of 63, and handles that it had not registered")
	}
	if slices.ContainsFunc(r.Files, func(f File) bool { return f.Read.Async+f.Write.Async > 0 }) {
		r.Notes = append(r.Notes, "asynchronous requests are those of batches and streams; they are counted when they are made, not when they end")
	}
}
