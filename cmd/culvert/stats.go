package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/internal/top"
	"github.com/culvert-io/culvert/route"
)

type statsOptions struct {
	pid         int
	json        bool
	all         bool
	openmetrics bool
	watch       bool
	interval    time.Duration
	count       int
}

func newStats() *cobra.Command {
	o := statsOptions{interval: time.Second}
	cmd := &cobra.Command{
		Use:   "stats [-p PID]",
		Short: "List the processes that move data, or print the totals of one",
		Long: `List the processes that move data through Culvert, or print the transfer totals
of one by route and by file, the slowest first. They include transfers through
Culvert's libcufile.so.0. The processes are not interrupted. Totals remain at least a
minute after exit, those of the user's last 256 processes. Their process ID
is the one that the kernel reports. Root may read those of all users.

--watch prints a line per process and interval. --openmetrics prints the totals
as metrics that Prometheus' node exporter reads from a file (textfile collector).

EXIT STATUS
  0  the totals were printed
  1  the process has none, or they cannot be read
  2  invalid command line`,
		Example: `  culvert stats
  culvert stats -p 4711
  culvert stats -p $(pgrep -n python3) --json
  culvert stats --watch --interval 5s
  culvert stats --openmetrics > /var/lib/node_exporter/culvert.prom`,
		Args: args(cobra.NoArgs),
		RunE: run(o.run),
	}
	cmd.Flags().IntVarP(&o.pid, "pid", "p", 0, "process ID")
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "also list processes that have ended")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.openmetrics, "openmetrics", false, "print metrics for Prometheus")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "print the rates of each interval until interrupted")
	cmd.Flags().DurationVar(&o.interval, "interval", o.interval, "time between two lines of --watch, at least 100ms")
	cmd.Flags().IntVar(&o.count, "count", 0, "end --watch after this many intervals")
	cmd.MarkFlagsMutuallyExclusive("json", "openmetrics", "watch")
	return cmd
}

func (o *statsOptions) run(ctx context.Context, _ []string, out io.Writer) error {
	if o.pid < 0 {
		return usageError{fmt.Errorf("invalid process ID %d", o.pid)}
	}
	if o.watch {
		return o.watchRates(ctx, out)
	}
	list, err := o.read()
	switch {
	case err != nil:
		return fmt.Errorf("stats: %w", err)
	case o.openmetrics:
		return stats.WriteMetrics(out, list)
	case o.pid > 0:
		return show(out, o.json, newStatsResult(list[0]))
	case o.json:
		results := []statsResult{}
		for _, s := range list {
			results = append(results, newStatsResult(s))
		}
		return writeJSON(out, results)
	}
	return printProcesses(out, list)
}

// read returns the totals of the process, or of all.
func (o *statsOptions) read() ([]*stats.Snapshot, error) {
	if o.pid == 0 {
		return stats.List(o.all || o.openmetrics), nil
	}
	s, err := stats.Read(o.pid)
	return []*stats.Snapshot{s}, err
}

func printProcesses(out io.Writer, list []*stats.Snapshot) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no process moves data through Culvert (-a lists those that have ended)")
		return err
	}
	if width := screenWidth(out); width > 0 && width < tableWidth {
		return printNarrow(out, list)
	}
	w := human.Table(out)
	fmt.Fprintln(w, "PID\tSTATE\tREAD\tWRITTEN\tTHROUGH HOST\tERRORS\tROUTES\tCOMMAND")
	for _, s := range list {
		r := newStatsResult(s)
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", r.PID, r.state(), human.Size(r.Total.ReadBytes), human.Size(r.Total.WriteBytes),
			human.Size(r.Total.HostBytes), r.Total.Errors, routeNames(r.Total.Routes), human.Name(r.Command))
	}
	return w.Flush()
}

// tableWidth is the screen on which the table of processes has room for their commands.
const tableWidth = 120

// printNarrow prints a process in two lines, which may be folded.
func printNarrow(out io.Writer, list []*stats.Snapshot) error {
	for _, s := range list {
		r := newStatsResult(s)
		_, err := fmt.Fprintf(out, "%-7d  %s\n         %s, read %s, written %s, through host memory %s, errors %d, by %s\n", r.PID, human.Name(r.Command), r.state(),
			human.Size(r.Total.ReadBytes), human.Size(r.Total.WriteBytes), human.Size(r.Total.HostBytes), r.Total.Errors, routeNames(r.Total.Routes))
		if err != nil {
			return err
		}
	}
	return nil
}

func routeNames(routes []statsRoute) string {
	names := []string{}
	for _, e := range routes {
		if e.Route != route.None.String() { // of what failed; it is counted as an error
			names = append(names, human.Name(e.Route))
		}
	}
	return cmp.Or(strings.Join(names, ","), "-")
}

// watchRates prints a line per process and interval.
func (o *statsOptions) watchRates(ctx context.Context, out io.Writer) error {
	if err := checkInterval(o.interval); err != nil {
		return err
	}
	ticks := time.NewTicker(o.interval)
	defer ticks.Stop()
	var m top.Meter
	for n := 0; ; n++ {
		list, err := o.read()
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		now := time.Now()
		rows := m.Step(now, list)
		for _, r := range rows {
			if n > 0 {
				fmt.Fprintf(out, "%s pid=%d read=%s write=%s host=%s ops=%.0f/s latency=%s errors=%d route=%s command=%s\n", now.Format(time.RFC3339), r.PID,
					human.Rate(r.Read), human.Rate(r.Write), human.Rate(r.Host), r.Ops, strings.ReplaceAll(human.Duration(r.Latency), " ", ""), r.Errors, cmp.Or(r.Route, "-"), human.Name(r.Command))
			}
		}
		if o.count > 0 && n == o.count {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
}

// A statsResult is what stats prints.
type statsResult struct {
	PID     int         `json:"pid"`
	UID     int         `json:"uid"`
	Command string      `json:"command"`
	Started time.Time   `json:"started"`
	Alive   bool        `json:"alive"`
	Total   statsSums   `json:"total"`
	Files   []statsFile `json:"files"`
}

type statsFile struct {
	Name string `json:"name"`
	Open bool   `json:"open"`
	statsSums
}

type statsSums struct {
	statsCounts
	HostBytes int64        `json:"host_bytes"`
	Errors    int64        `json:"errors"`
	Retries   int64        `json:"retries"`
	Seconds   float64      `json:"seconds"` // summed over transfers, also parallel ones
	Routes    []statsRoute `json:"routes"`
}

type statsCounts struct {
	Reads      int64 `json:"reads"`
	ReadBytes  int64 `json:"read_bytes"`
	Writes     int64 `json:"writes"`
	WriteBytes int64 `json:"write_bytes"`
}

type statsRoute struct {
	Route string `json:"route"`
	statsCounts
}

func newStatsResult(s *stats.Snapshot) statsResult {
	res := statsResult{PID: s.PID, UID: s.UID, Command: s.Command, Started: s.Started, Alive: s.Alive, Total: newStatsSums(&s.Totals, s.Routes), Files: []statsFile{}}
	for _, f := range s.Files {
		res.Files = append(res.Files, statsFile{f.Name, f.Open, newStatsSums(&f.Totals, s.Routes)})
	}
	return res
}

func newStatsSums(t *stats.Totals, names []string) statsSums {
	s := statsSums{HostBytes: t.Host, Errors: t.Errors, Retries: t.Retries, Seconds: t.Time.Seconds(), Routes: []statsRoute{}}
	s.Reads, s.ReadBytes = t.Sum(false)
	s.Writes, s.WriteBytes = t.Sum(true)
	for i, name := range names {
		c := statsCounts{t.Ops[0][i], t.Bytes[0][i], t.Ops[1][i], t.Bytes[1][i]}
		if c != (statsCounts{}) {
			s.Routes = append(s.Routes, statsRoute{name, c})
		}
	}
	return s
}

func (r statsResult) state() string {
	if r.Alive {
		return "running"
	}
	return "ended"
}

func (r statsResult) String() string {
	out := new(strings.Builder)
	fmt.Fprintf(out, "process  %d, %s, since %s, user %d\n         %s\n", r.PID, r.state(), r.Started.Format(time.DateTime), r.UID, human.Name(r.Command))
	w := tabwriter.NewWriter(out, 0, 8, 1, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "route\treads\tbytes\twrites\tbytes\t")
	for _, e := range r.Total.Routes {
		printCounts(w, human.Name(e.Route), e.statsCounts)
	}
	printCounts(w, "total", r.Total.statsCounts)
	w.Flush()
	fmt.Fprintf(out, "through host memory %s, errors %d, retries %d, %s s in transfers\n",
		human.Size(r.Total.HostBytes), r.Total.Errors, r.Total.Retries, human.Digits(r.Total.Seconds))
	for _, f := range slowest(r.Files) {
		printStatsFile(out, f)
	}
	return out.String()
}

// slowest sorts files by the time that their transfers took, the longest first.
func slowest(files []statsFile) []statsFile {
	return slices.SortedStableFunc(slices.Values(files), func(a, b statsFile) int { return cmp.Compare(b.Seconds, a.Seconds) })
}

func printCounts(w io.Writer, name string, c statsCounts) {
	fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t\n", name, c.Reads, human.Size(c.ReadBytes), c.Writes, human.Size(c.WriteBytes))
}

func printStatsFile(out io.Writer, f statsFile) {
	state := "open"
	if !f.Open {
		state = "closed"
	}
	fmt.Fprintf(out, "file     %s (%s)\n         read %s, written %s, through host memory %s, errors %d, %s s in transfers; by",
		human.Name(atomicfile.Target(f.Name)), state, human.Size(f.ReadBytes), human.Size(f.WriteBytes), human.Size(f.HostBytes), f.Errors, human.Digits(f.Seconds))
	for _, e := range f.Routes {
		fmt.Fprintf(out, " %s", human.Name(e.Route))
	}
	fmt.Fprintln(out)
}
