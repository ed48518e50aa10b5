package watch

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

// String is the report for people. A terminal obeys nothing in it.
func (r *Report) String() string {
	var b strings.Builder
	calls, active := int64(0), 0
	for _, p := range r.Processes {
		calls += p.Calls
		if p.Calls > 0 {
			active++
		}
	}
	var words []string
	for _, w := range r.Program {
		words = append(words, human.Name(w))
	}
	fmt.Fprintf(&b, "culvert: %s: status %d, engine %s, %s by %s\n", strings.Join(words, " "), r.Status, r.Engine, human.Count(int(calls), "cuFile call"), processes(active, len(r.Processes)))
	if r.Machine == route.SoftwareMachine {
		fmt.Fprintf(&b, "This is the software machine: routes and times say nothing about hardware.\n")
	}
	repeated := r.repeated()
	for i := range r.Files {
		r.Files[i].print(&b, repeated)
	}
	if len(repeated) > 0 {
		fmt.Fprintf(&b, "declined for several files\n")
	}
	for _, d := range repeated {
		fmt.Fprintf(&b, "  %s\n", d)
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
	return human.Text(b.String())
}

func processes(active, all int) string {
	switch {
	case active < all:
		return fmt.Sprintf("%d of %d processes", active, all)
	case all == 1:
		return "1 process"
	}
	return fmt.Sprintf("%d processes", all)
}

// repeated are the reasons that several files have in common: they are printed once.
func (r *Report) repeated() (list []string) {
	seen := map[string]int{}
	for _, f := range r.Files {
		for _, d := range f.Declined {
			if seen[d]++; seen[d] == 2 {
				list = append(list, d)
			}
		}
	}
	return list
}

// short is the beginning of a reason: the route and what failed.
func short(decline string) string {
	parts := strings.SplitN(decline, ": ", 3)
	return strings.Join(parts[:min(len(parts), 2)], ": ")
}

func (f *File) print(b *strings.Builder, repeated []string) {
	fmt.Fprintf(b, "%s\n", human.Name(f.Path))
	f.Read.print(b, "read")
	f.Write.print(b, "write")
	if len(f.Routes) > 0 {
		var parts []string
		for _, r := range f.Routes {
			parts = append(parts, fmt.Sprintf("%s %s", r.Route, human.Size(r.Bytes)))
		}
		fmt.Fprintf(b, "  routes %s (%s); %.0f %% direct, %s through host memory\n", strings.Join(parts, ", "), f.Evidence, 100*f.DirectShare, human.Size(f.Host))
	} else if f.Evidence != "" {
		fmt.Fprintf(b, "  routes not known (%s)\n", f.Evidence)
	}
	var below []string
	for _, d := range f.Declined {
		if slices.Contains(repeated, d) {
			below = append(below, short(d))
		} else {
			fmt.Fprintf(b, "  declined %s\n", d)
		}
	}
	if len(below) > 0 {
		fmt.Fprintf(b, "  declined %s (reasons below)\n", strings.Join(below, ", "))
	}
	for _, c := range f.Errors {
		fmt.Fprintf(b, "  error %d %s, %s\n", c.Code, c.Meaning, human.Count(int(c.Count), "time"))
	}
}

func (d *Direction) print(b *strings.Builder, name string) {
	sizes, one := d.sizes()
	var parts []string
	if n := d.Calls - d.Async; n > 0 {
		calls := transfers(n, name, one, d.Bytes)
		if d.Failed > 0 {
			calls += fmt.Sprintf(", %d failed", d.Failed)
		}
		if d.Short > 0 {
			calls += fmt.Sprintf(", %d short", d.Short)
		}
		parts = append(parts, calls)
	}
	if d.P50 > 0 {
		parts = append(parts, d.times())
	}
	if d.Async > 0 {
		parts = append(parts, transfers(d.Async, "asynchronous "+name, one, d.Asked))
	}
	if len(parts) == 0 {
		return
	}
	fmt.Fprintf(b, "  %s\n", strings.Join(parts, "; "))
	if one == "" {
		fmt.Fprintf(b, "    sizes: %s\n", strings.Join(sizes, ", "))
	}
}

// transfers are n calls, each of the same size if that is not empty, with their bytes.
func transfers(n int64, name, size string, bytes int64) string {
	text := human.Count(int(n), name) + size
	if n == 1 && size != "" {
		return text
	}
	return text + ", " + human.Size(bytes)
}

// sizes are the classes of request sizes. A class is "from" its smallest size on, or "of" that
// if all requests together have no more bytes than that makes. If all calls have one size, it is
// also returned alone.
func (d *Direction) sizes() (list []string, one string) {
	var least, calls int64
	for i := range sizeSlots {
		n := d.Sizes[fmt.Sprint(int64(1)<<i)]
		least, calls = least+n<<i, calls+n
	}
	word := "from"
	if d.Failed == 0 && d.Short == 0 && d.Bytes+d.Asked == least {
		word = "of"
	}
	for i := range sizeSlots {
		if n := d.Sizes[fmt.Sprint(int64(1)<<i)]; n > 0 {
			class := word + " " + human.Size(int64(1)<<i)
			if i == 0 && word == "from" {
				class = "of 0 or 1 B"
			}
			list = append(list, fmt.Sprintf("%d %s", n, class))
			if n == calls && word == "of" && (d.Async == 0 || d.Async == d.Calls) {
				one = " of " + human.Size(int64(1)<<i)
			}
		}
	}
	return list, one
}

// times are the percentiles. Of those that are the same it has the last.
func (d *Direction) times() string {
	var parts []string
	list := []struct {
		percent int
		us      float64
	}{{50, d.P50}, {95, d.P95}, {99, d.P99}}
	for i, p := range list {
		if i+1 == len(list) || list[i+1].us != p.us {
			parts = append(parts, fmt.Sprintf("%d %% within %s", p.percent, micros(p.us)))
		}
	}
	return strings.Join(parts, ", ")
}

func micros(us float64) string { return human.Duration(time.Duration(us * 1e3)) }
