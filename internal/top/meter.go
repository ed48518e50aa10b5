// Package top shows the transfers of all processes live: rates per process and file
// from two readings of their statistics, as rows, lines or a terminal screen.
package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/stats"
)

// historyLength is how many intervals a sparkline shows.
const historyLength = 12

// A Row is what a process, or one file of it, did in an interval.
type Row struct {
	PID      int
	Command  string
	File     string // empty in the row of a process
	GPU      int    // -1 if unknown
	Route    string // that moved most bytes in the interval, or of all before
	Read     float64
	Write    float64       // bytes per second
	Host     float64       // bytes per second through host memory
	Link     float64       // rate divided by the pinned-copy rate; 0 if unknown
	Latency  time.Duration // mean of the interval's transfers; 0 if there were none
	Ops      float64       // transfers per second
	Errors   int64         // in all
	Bytes    int64         // in all
	Ended    bool
	History  []float64 // rates of the last intervals, the latest last
	Declined []string  // why better routes were not used
	Files    []Row     // of a process
}

// Rate is bytes per second in both directions.
func (r *Row) Rate() float64 { return r.Read + r.Write }

// A Meter turns readings of statistics into rows. The zero value is ready to use.
type Meter struct {
	last    time.Time
	before  map[key]reading
	history map[key][]float64
}

// A key names a process or a file across readings.
type key struct {
	pid     int
	started int64
	file    string
	gpu     int
}

// A reading is what a process or a file had at a time, in so many slots.
type reading struct {
	stats.Totals
	slots int
}

// Step returns one row per process, with rates since the step before. Rates of a
// process that is new are those since its start, at most one interval ago.
func (m *Meter) Step(now time.Time, list []*stats.Snapshot) []Row {
	before, history := m.before, m.history
	interval := now.Sub(m.last)
	first := m.last.IsZero()
	m.last, m.before, m.history = now, map[key]reading{}, map[key][]float64{}
	var rows []Row
	for _, s := range list {
		k := key{s.PID, s.Started.UnixNano(), "", -1}
		one := func(k key, t reading) Row {
			m.before[k] = t
			from := before[k]
			if first || t.slots < from.slots || from.slots > 1 && t.Time < from.Time {
				from = t // one was closed: what the others moved is not known
			}
			r := difference(from.Totals, t.Totals, interval, s.Routes)
			r.PID, r.Command, r.Ended, r.GPU = s.PID, s.Command, !s.Alive, -1
			h := append(slices.Clone(history[k]), r.Rate())
			m.history[k] = h[max(0, len(h)-historyLength):]
			r.History = m.history[k]
			return r
		}
		row := one(k, reading{s.Totals, 1})
		for _, f := range byName(s.Files) {
			k.file, k.gpu = f.Name, f.GPU
			r := one(k, reading{f.Totals, f.slots})
			r.File, r.GPU = f.Name, f.GPU
			if f.Ceiling > 0 {
				r.Link = r.Rate() / f.Ceiling
			}
			if f.Declined != "" {
				r.Declined = strings.Split(f.Declined, "\n")
			}
			row.Files = append(row.Files, r)
		}
		row.Link = sumLinks(row.Files)
		rows = append(rows, row)
	}
	return rows
}

// byName adds up what a process has of one file and one GPU, in the order of the first: a file
// that is open twenty times is one row.
func byName(files []stats.FileSnapshot) (list []namedFile) {
	for _, f := range files {
		i := slices.IndexFunc(list, func(l namedFile) bool { return l.Name == f.Name && l.GPU == f.GPU })
		if i < 0 {
			list = append(list, namedFile{f, 1})
			continue
		}
		f.Totals.Add(&list[i].Totals)
		list[i] = namedFile{f, list[i].slots + 1} // with the latest description
	}
	return list
}

// A namedFile is the sum of several slots of a process.
type namedFile struct {
	stats.FileSnapshot
	slots int
}

// sumLinks adds the shares of files of one GPU and returns the largest sum: several
// GPUs have a link each.
func sumLinks(files []Row) float64 {
	byGPU := map[int]float64{}
	var most float64
	for i := range files {
		byGPU[files[i].GPU] += files[i].Link
		most = max(most, byGPU[files[i].GPU])
	}
	return most
}

// difference is what happened between two readings.
func difference(a, b stats.Totals, interval time.Duration, routes []string) Row {
	if b.Time < a.Time || interval <= 0 { // the file was closed and opened again
		a, interval = stats.Totals{}, max(interval, time.Second)
	}
	seconds := interval.Seconds()
	aReads, aIn := a.Sum(false)
	aWrites, aOut := a.Sum(true)
	bReads, bIn := b.Sum(false)
	bWrites, bOut := b.Sum(true)
	r := Row{
		Read: float64(bIn-aIn) / seconds, Write: float64(bOut-aOut) / seconds, Host: float64(b.Host-a.Host) / seconds,
		Errors: b.Errors, Bytes: bIn + bOut, Route: busiest(a, b, routes),
	}
	if ops := bReads + bWrites - aReads - aWrites; ops > 0 {
		r.Ops, r.Latency = float64(ops)/seconds, (b.Time-a.Time)/time.Duration(ops)
	}
	return r
}

// busiest names the route that moved most bytes between two readings, or before if
// nothing moved.
func busiest(a, b stats.Totals, routes []string) string {
	most, name := int64(0), ""
	for _, from := range []stats.Totals{a, {}} {
		for i, route := range routes {
			if n := b.Bytes[0][i] + b.Bytes[1][i] - from.Bytes[0][i] - from.Bytes[1][i]; n > most {
				most, name = n, route
			}
		}
		if most > 0 {
			break
		}
	}
	return name
}

// An Order sorts rows.
type Order int

// The orders, in the sequence in which a key switches between them.
const (
	ByRate Order = iota
	ByLatency
	ByErrors
	ByHost
	ByPID
	numOrders
)

func (o Order) String() string {
	return [...]string{"rate", "latency", "errors", "host bytes", "PID"}[o]
}

// Arrange returns the rows, and the files of each, in an order, those alone whose
// command or file name contains the filter.
func Arrange(rows []Row, by Order, filter string) []Row {
	var out []Row
	for _, r := range rows {
		if !strings.Contains(r.Command, filter) {
			r.Files = slices.DeleteFunc(slices.Clone(r.Files), func(f Row) bool { return !strings.Contains(f.File, filter) })
			if len(r.Files) == 0 {
				continue
			}
		} else {
			r.Files = slices.Clone(r.Files)
		}
		slices.SortStableFunc(r.Files, by.compare)
		out = append(out, r)
	}
	slices.SortStableFunc(out, by.compare)
	return out
}

func (o Order) compare(a, b Row) int {
	switch o {
	case ByLatency:
		return cmp.Compare(b.Latency, a.Latency)
	case ByErrors:
		return cmp.Compare(b.Errors, a.Errors)
	case ByHost:
		return cmp.Compare(b.Host, a.Host)
	case ByPID:
		return cmp.Compare(a.PID, b.PID)
	}
	return cmp.Compare(b.Rate(), a.Rate())
}
