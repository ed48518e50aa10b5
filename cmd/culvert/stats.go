package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/stats"
)

type statsOptions struct {
	pid  int
	json bool
}

func newStats() *cobra.Command {
	var o statsOptions
	cmd := &cobra.Command{
		Use:   "stats -p PID",
		Short: "Print the transfer totals of a process",
		Long: `Print a process's transfer totals by route and file. They include transfers
through Culvert's libcufile.so.0. The process is not interrupted. Totals
remain at least a minute after exit, those of the user's last 256 processes. The
kernel says which process made them; root may read those of all users.

EXIT STATUS
  0  the totals were printed
  1  the process has none, or they cannot be read
  2  invalid command line`,
		Example: `  culvert stats -p 4711
  culvert stats -p $(pgrep -n python3) --json`,
		Args: args(cobra.NoArgs),
		RunE: run(o.run),
	}
	cmd.Flags().IntVarP(&o.pid, "pid", "p", 0, "process ID")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o *statsOptions) run(_ context.Context, _ []string, out io.Writer) error {
	if o.pid <= 0 {
		return usageError{errors.New("missing -p PID")}
	}
	s, err := stats.Read(o.pid)
	if err != nil {
		return fmt.Errorf("stats: %w", err)
	}
	return show(out, o.json, newStatsResult(s))
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

func (r statsResult) String() string {
	out := new(strings.Builder)
	state := "running"
	if !r.Alive {
		state = "ended"
	}
	fmt.Fprintf(out, "process  %d, %s, since %s, user %d\n         %s\n", r.PID, state, r.Started.Format(time.DateTime), r.UID, human.Name(r.Command))
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "route\treads\tbytes\twrites\tbytes\t")
	for _, e := range r.Total.Routes {
		printCounts(w, human.Name(e.Route), e.statsCounts)
	}
	printCounts(w, "total", r.Total.statsCounts)
	w.Flush()
	fmt.Fprintf(out, "through host memory %s, errors %d, retries %d, %.3g s in transfers\n",
		human.Size(r.Total.HostBytes), r.Total.Errors, r.Total.Retries, r.Total.Seconds)
	for _, f := range r.Files {
		printStatsFile(out, f)
	}
	return out.String()
}

func printCounts(w io.Writer, name string, c statsCounts) {
	fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t\n", name, c.Reads, human.Size(c.ReadBytes), c.Writes, human.Size(c.WriteBytes))
}

func printStatsFile(out io.Writer, f statsFile) {
	state := "open"
	if !f.Open {
		state = "closed"
	}
	fmt.Fprintf(out, "file     %s (%s)\n         read %s, written %s, through host memory %s, errors %d; by",
		human.Name(f.Name), state, human.Size(f.ReadBytes), human.Size(f.WriteBytes), human.Size(f.HostBytes), f.Errors)
	for _, e := range f.Routes {
		fmt.Fprintf(out, " %s", human.Name(e.Route))
	}
	fmt.Fprintln(out)
}
