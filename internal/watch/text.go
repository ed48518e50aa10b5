package watch

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

// String is the report for people.
func (r *Report) String() string {
	var b strings.Builder
	calls, active := int64(0), 0
	for _, p := range r.Processes {
		calls += p.Calls
		if p.Calls > 0 {
			active++
		}
	}
	fmt.Fprintf(&b, "culvert: %s: status %d, engine %s, %d cuFile calls by %d of %d processes\n", strings.Join(r.Program, " "), r.Status, r.Engine, calls, active, len(r.Processes))
	if r.Machine == route.SoftwareMachine {
		fmt.Fprintf(&b, "This is the software machine: routes and times say nothing about hardware.\n")
	}
	for i := range r.Files {
		r.Files[i].print(&b)
	}
	if len(r.Failures) > 0 {
		fmt.Fprintf(&b, "failed calls\n")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, f := range r.Failures {
			fmt.Fprintf(w, "  %s\t%d\t%s\t%s\n", f.Function, f.Code.Code, f.Meaning, human.Count(int(f.Count), "time"))
		}
		w.Flush()
	}
	for _, f := range r.Faults {
		fmt.Fprintf(&b, "fault: %s\n", f)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

func (f *File) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s\n", human.Name(f.Path))
	f.Read.print(b, "reads")
	f.Write.print(b, "writes")
	if len(f.Routes) > 0 {
		var parts []string
		for _, r := range f.Routes {
			parts = append(parts, fmt.Sprintf("%s %s", r.Route, human.Size(r.Bytes)))
		}
		fmt.Fprintf(b, "  routes %s (%s); %.0f %% direct, %s through host memory\n", strings.Join(parts, ", "), f.Evidence, 100*f.DirectShare, human.Size(f.Host))
	} else if f.Evidence != "" {
		fmt.Fprintf(b, "  routes not known (%s)\n", f.Evidence)
	}
	for _, d := range f.Declined {
		fmt.Fprintf(b, "  declined %s\n", d)
	}
	for _, c := range f.Errors {
		fmt.Fprintf(b, "  error %d %s, %s\n", c.Code, c.Meaning, human.Count(int(c.Count), "time"))
	}
}

func (d *Direction) print(b *strings.Builder, name string) {
	if d.Calls == 0 {
		return
	}
	fmt.Fprintf(b, "  %s %d calls, %s", name, d.Calls, human.Size(d.Bytes))
	for _, n := range []struct {
		count int64
		what  string
	}{{d.Failed, "failed"}, {d.Short, "short"}, {d.Async, "asynchronous"}} {
		if n.count > 0 {
			fmt.Fprintf(b, ", %d %s", n.count, n.what)
		}
	}
	if d.P50 > 0 {
		fmt.Fprintf(b, "; 50 %% within %s, 95 %% %s, 99 %% %s", micros(d.P50), micros(d.P95), micros(d.P99))
	}
	var sizes []string
	for i := range sizeSlots {
		size := int64(1) << i
		if n := d.Sizes[fmt.Sprint(size)]; n > 0 {
			sizes = append(sizes, fmt.Sprintf(" %s: %d", human.Size(size), n))
		}
	}
	fmt.Fprintf(b, "\n  request sizes from%s\n", strings.Join(sizes, ","))
}

func micros(us float64) string { return human.Duration(time.Duration(us * 1e3)) }
