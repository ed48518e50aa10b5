package bench

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/human"
)

// A Printer prints results as they come.
type Printer interface {
	Print(*Result) error
}

// A tableColumn has a title, a width, the width of the screen from which on it is
// shown, and a text. Numbers are right-aligned.
type tableColumn struct {
	title string
	width int
	need  int
	left  bool
	text  func(*Result) string
}

var tableColumns = []tableColumn{
	{"ENGINE", 10, 0, true, rowName},
	{"ROUTE", 6, 0, true, routeName},
	{"BLOCK", 6, 0, false, func(r *Result) string { return human.ShortSize(r.Block) }},
	{"THREADS", 7, 0, false, func(r *Result) string { return strconv.Itoa(r.Threads) }},
	{"BATCH", 5, 104, false, func(r *Result) string { return strconv.Itoa(r.Batch) }},
	{"GB/s", 6, 0, false, func(r *Result) string { return tableRate(r.GBps) }},
	{"LINK", 5, 50, false, func(r *Result) string {
		if r.Share == 0 {
			return "-"
		}
		if r.Share >= 10 {
			return ">999%" // a peer that does not use the link
		}
		return fmt.Sprintf("%.0f%%", 100*r.Share)
	}},
	{"IOPS", 8, 60, false, func(r *Result) string { return fmt.Sprintf("%.0f", r.IOPS) }},
	{"p50", 7, 80, false, func(r *Result) string { return micros(r.Latency.P50) }},
	{"p99", 7, 70, false, func(r *Result) string { return micros(r.Latency.P99) }},
	{"p99.9", 7, 104, false, func(r *Result) string { return micros(r.Latency.P999) }},
	{"max", 7, 104, false, func(r *Result) string { return micros(r.Latency.Max) }},
	{"CPU s/GB", 8, 112, false, func(r *Result) string {
		if r.CPUPerGB == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3f", r.CPUPerGB)
	}},
	{"HOST", 5, 80, false, hostShare},
	{"CACHED", 6, 120, false, func(r *Result) string {
		if r.Store != "" {
			return "-"
		}
		if r.Resident < 0 {
			return "?"
		}
		return fmt.Sprintf("%.0f%%", 100*r.Resident)
	}},
}

func rowName(r *Result) string {
	if r.part != "" {
		return "  " + r.part
	}
	return strings.TrimSuffix(r.Engine, "/"+routeName(r))
}

func routeName(r *Result) string {
	if r.Receipt == nil {
		return "-"
	}
	return r.Receipt.Route.String()
}

// hostShare is the part of the bytes that went through host memory.
func hostShare(r *Result) string {
	if r.Receipt == nil || r.Receipt.Bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", human.Percent(r.Receipt.Host.Bytes, r.Receipt.Bytes))
}

// tableRate has three digits, or as many as fit: 0.0005, never 5.12e-04.
func tableRate(gbps float64) string {
	if gbps < 0.01 {
		return fmt.Sprintf("%.4f", gbps)
	}
	return digits(gbps)
}

// digits is human.Digits with zeros at the end: a column of numbers is compared at a glance
// only if they are equally long.
func digits(v float64) string {
	e := strconv.FormatFloat(v, 'e', 2, 64) // rounds 9.999 to 1.00e+01
	power, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	return strconv.FormatFloat(v, 'f', max(2-power, 0), 64)
}

func micros(us float64) string {
	d := time.Duration(us * 1e3)
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%sµs", digits(us))
	case d < time.Second:
		return fmt.Sprintf("%sms", digits(us/1e3))
	}
	return fmt.Sprintf("%ss", digits(us/1e6))
}

// A Table prints aligned columns, with a title before the first row and whenever
// what all rows have in common changes.
type Table struct {
	W     io.Writer
	Width int // of the screen; columns that it has no room for are left out; 0 has room for all
	title string
}

// Print implements Printer.
func (t *Table) Print(r *Result) error {
	if title := tableTitle(r); title != t.title {
		if t.title != "" {
			fmt.Fprintln(t.W)
		}
		t.title = title
		fmt.Fprintln(t.W, title)
		if hidden := t.hidden(); hidden != "" {
			fmt.Fprintf(t.W, "(a wider screen or --lines also has %s)\n", hidden)
		}
		fmt.Fprintln(t.W, t.line(func(c tableColumn) string { return c.title }))
	}
	for _, row := range r.rows() {
		if _, err := fmt.Fprintln(t.W, t.line(func(c tableColumn) string { return c.text(row) })); err != nil {
			return err
		}
	}
	return nil
}

// rows are the result and, if it is mixed, its parts. CPU time is known for both together.
func (r *Result) rows() []*Result {
	rows := []*Result{r}
	for _, p := range []struct {
		name string
		part *Part
	}{{"reads", r.Reads}, {"writes", r.Writes}} {
		if p.part == nil {
			continue
		}
		row := *r
		row.part, row.Part, row.CPUPerGB = p.name, *p.part, 0
		rows = append(rows, &row)
	}
	return rows
}

// tableTitle says what the columns do not.
func tableTitle(r *Result) string {
	words := []string{string(r.Pattern), "memory " + r.Memory}
	if r.Job != "" {
		words[0] = "job " + r.Job + ": " + words[0]
	}
	if r.Pattern.Mixed() {
		words[0] += fmt.Sprintf(" with %d%% reads", r.ReadPercent)
	}
	if r.Limit > 0 {
		words = append(words, "at most "+human.Speed(float64(r.Limit)))
	}
	if r.Files > 0 {
		words = append(words, human.Count(r.Files, "file"))
	}
	if !r.Register {
		words = append(words, "not registered")
	}
	switch {
	case r.Store != "":
		words = append(words, "store "+r.Store)
	case r.Cold:
		words = append(words, "cold")
	default:
		words = append(words, "warm")
	}
	if r.Verify {
		words = append(words, "verified")
	}
	if r.Ceiling > 0 {
		words = append(words, fmt.Sprintf("link %.3g GB/s (pinned copy)", r.Ceiling))
	}
	if r.Soft {
		words = append(words, "SOFTWARE MACHINE: figures say nothing about hardware")
	}
	return strings.Join(words, ", ")
}

func (t *Table) shows(c tableColumn) bool { return t.Width == 0 || t.Width >= c.need }

// hidden names the columns that are left out.
func (t *Table) hidden() string {
	var names []string
	for _, c := range tableColumns {
		if !t.shows(c) {
			names = append(names, c.title)
		}
	}
	return strings.Join(names, ", ")
}

func (t *Table) line(text func(tableColumn) string) string {
	var b strings.Builder
	for _, c := range tableColumns {
		if !t.shows(c) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(" ")
		}
		width := c.width
		if c.left {
			width = -width
		}
		fmt.Fprintf(&b, "%*s", width, text(c))
	}
	return strings.TrimRight(b.String(), " ")
}

// Lines prints each result as one line of key=value fields.
type Lines struct{ W io.Writer }

// Print implements Printer.
func (l Lines) Print(r *Result) error {
	_, err := fmt.Fprintln(l.W, r)
	return err
}

// CSV prints comma-separated values: plain numbers, no units.
type CSV struct {
	W     io.Writer
	begun bool
}

var csvColumns = []struct {
	name string
	text func(*Result) string
}{
	{"pattern", func(r *Result) string { return string(r.Pattern) }},
	{"engine", func(r *Result) string { return r.Engine }},
	{"route", routeName},
	{"memory", func(r *Result) string { return r.Memory }},
	{"registered", func(r *Result) string { return strconv.FormatBool(r.Register) }},
	{"cold", func(r *Result) string { return strconv.FormatBool(r.Cold) }},
	{"block_bytes", func(r *Result) string { return strconv.FormatInt(r.Block, 10) }},
	{"threads", func(r *Result) string { return strconv.Itoa(r.Threads) }},
	{"batch", func(r *Result) string { return strconv.Itoa(r.Batch) }},
	{"bytes", func(r *Result) string { return strconv.FormatInt(r.Moved, 10) }},
	{"seconds", func(r *Result) string { return decimal(r.Seconds) }},
	{"gb_per_second", func(r *Result) string { return decimal(r.GBps) }},
	{"share_of_ceiling", func(r *Result) string { return decimal(r.Share) }},
	{"ops_per_second", func(r *Result) string { return decimal(r.IOPS) }},
	{"mean_us", func(r *Result) string { return decimal(r.Latency.Mean) }},
	{"p50_us", func(r *Result) string { return decimal(r.Latency.P50) }},
	{"p90_us", func(r *Result) string { return decimal(r.Latency.P90) }},
	{"p99_us", func(r *Result) string { return decimal(r.Latency.P99) }},
	{"p99.9_us", func(r *Result) string { return decimal(r.Latency.P999) }},
	{"max_us", func(r *Result) string { return decimal(r.Latency.Max) }},
	{"cpu_seconds_per_gb", func(r *Result) string { return decimal(r.CPUPerGB) }},
	{"host_share", func(r *Result) string {
		if r.Receipt == nil || r.Receipt.Bytes == 0 {
			return ""
		}
		return decimal(float64(r.Receipt.Host.Bytes) / float64(r.Receipt.Bytes))
	}},
	{"read_percent", func(r *Result) string { return strconv.Itoa(r.ReadPercent) }},
	{"limit_bytes_per_second", func(r *Result) string { return strconv.FormatInt(r.Limit, 10) }},
	{"job", func(r *Result) string { return r.Job }},
	{"part", func(r *Result) string { return cmp.Or(r.part, "all") }},
	{"store", func(r *Result) string { return r.Store }},
	{"origin_bytes", func(r *Result) string { return strconv.FormatInt(r.origin().Bytes, 10) }},
	{"requests", func(r *Result) string { return strconv.FormatInt(r.origin().Requests, 10) }},
	{"request_retries", func(r *Result) string { return strconv.FormatInt(r.origin().Retries, 10) }},
	{"hedges", func(r *Result) string { return strconv.FormatInt(r.origin().Hedges, 10) }},
	{"connections", func(r *Result) string { return strconv.FormatInt(r.origin().Connections, 10) }},
	{"files", func(r *Result) string { return strconv.Itoa(max(r.Files, 1)) }},
	{"software_machine", func(r *Result) string { return strconv.FormatBool(r.Soft) }},
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }

// Print implements Printer.
func (c *CSV) Print(r *Result) error {
	w := csv.NewWriter(c.W)
	line := make([]string, len(csvColumns))
	if !c.begun {
		c.begun = true
		for i, col := range csvColumns {
			line[i] = col.name
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	for _, row := range r.rows() {
		for i, col := range csvColumns {
			line[i] = col.text(row)
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
