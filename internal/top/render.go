package top

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
)

// A View is the state of the screen.
type View struct {
	Rows     []Row // all, in any order
	Now      time.Time
	Order    Order
	Filter   string
	Typing   bool // the filter is being typed
	Selected int  // among the lines of processes and files
	Detail   bool // show the selected file
	ASCII    bool // the terminal shows no other characters
}

// A Line is a line of the screen.
type Line struct {
	Text  string
	Style Style
}

// A Style says what a line is.
type Style int

// The styles.
const (
	Plain Style = iota
	Title
	Header
	Process
	Selected
	Alert
)

// Render draws the view in lines that fit a screen.
func (v *View) Render(width, height int) []Line {
	lines := []Line{{v.title(width), Title}}
	if v.Detail {
		lines = append(lines, v.detail(width)...)
	} else {
		lines = append(lines, v.table(width, height-2)...)
	}
	lines = lines[:min(len(lines), height-1)]
	for len(lines) < height-1 {
		lines = append(lines, Line{})
	}
	return append(lines, Line{human.Cut(v.keys(width), width), Header})
}

func (v *View) title(width int) string {
	var read, write, host float64
	for i := range v.Rows {
		read, write, host = read+v.Rows[i].Read, write+v.Rows[i].Write, host+v.Rows[i].Host
	}
	left := fmt.Sprintf("culvert top  %d processes  read %s  write %s  host %s", len(v.Rows), human.Speed(read), human.Speed(write), human.Speed(host))
	if len(v.Rows) == 1 {
		left = strings.Replace(left, "processes", "process", 1)
	}
	right := v.Now.Format(time.TimeOnly)
	if gap := width - len(left) - len(right); gap > 0 {
		return left + strings.Repeat(" ", gap) + right
	}
	return human.Cut(left, width)
}

func (v *View) keys(width int) string {
	switch {
	case v.Typing && width < 60:
		return "filter: " + v.Filter + "_"
	case v.Typing:
		return "filter: " + v.Filter + "_   (enter: apply, esc: clear)"
	case v.Detail:
		return "esc back  q quit"
	case width < 60:
		return "q quit  s sort  / filter  enter inspect"
	}
	filter := ""
	if v.Filter != "" {
		filter = fmt.Sprintf(" (%q)", v.Filter)
	}
	return fmt.Sprintf("q quit  s sort by %s  / filter%s  up/down select  enter inspect", v.Order, filter)
}

// lines are the rows of processes and files, in order.
func (v *View) lines() (list []*Row) {
	rows := Arrange(v.Rows, v.Order, v.Filter)
	for i := range rows {
		list = append(list, &rows[i])
		for k := range rows[i].Files {
			list = append(list, &rows[i].Files[k])
		}
	}
	return list
}

// Move selects another line.
func (v *View) Move(by int) { v.Selected = min(max(v.Selected+by, 0), max(len(v.lines())-1, 0)) }

func (v *View) table(width, height int) []Line {
	list := v.lines()
	if len(list) == 0 {
		text := "No process moves data through Culvert."
		if v.Filter != "" {
			text = "No process or file matches the filter."
		}
		return []Line{{}, {human.Cut(text, width), Plain}}
	}
	v.Move(0)
	cols := columnsFor(width)
	head := Line{cols.line(width, heading(cols.nameWidth(width), pidWidth(list)), func(c column) string { return c.title }), Header}
	from := max(0, v.Selected-(height-1)+1)
	lines := []Line{head}
	for i := from; i < len(list) && len(lines) < height; i++ {
		r := list[i]
		style := Plain
		switch {
		case i == v.Selected:
			style = Selected
		case r.Errors > 0 && r.File != "":
			style = Alert
		case r.File == "":
			style = Process
		}
		lines = append(lines, Line{cols.row(r, width, pidWidth(list), v.ASCII), style})
	}
	return lines
}

// detail is the selected file or process, whole.
func (v *View) detail(width int) []Line {
	list := v.lines()
	v.Move(0)
	if len(list) == 0 {
		return nil
	}
	r := list[v.Selected]
	texts := []string{"", fmt.Sprintf("process   %d  %s", r.PID, human.Name(r.Command))}
	if r.File != "" {
		texts = append(texts, "file      "+human.Shorten(human.Name(atomicfile.Target(r.File)), max(width-10, 1)))
	}
	if r.GPU >= 0 {
		texts = append(texts, fmt.Sprintf("GPU       gpu:%d", r.GPU))
	}
	rate := fmt.Sprintf("rate      read %s, write %s, through host memory %s", human.Speed(r.Read), human.Speed(r.Write), human.Speed(r.Host))
	texts = append(append(texts, "route     "+r.Route), strings.Split(human.Fold(rate, width), "\n")...)
	texts = append(texts,
		fmt.Sprintf("latency   %s mean of %.0f transfers/s", latency(r.Latency, v.ASCII), r.Ops),
		fmt.Sprintf("in all    %s, %d errors", human.Size(r.Bytes), r.Errors))
	if r.Link > 0 {
		texts = append(texts, fmt.Sprintf("link      %.0f%% of the pinned-copy rate", 100*r.Link))
	}
	texts = append(texts, "history   "+sparkline(r.History, historyLength, v.ASCII), "")
	if len(r.Declined) > 0 {
		texts = append(texts, "Better routes were not used because:")
		for _, d := range r.Declined {
			texts = append(texts, strings.Split(human.Fold("- "+human.Text(d), width), "\n")...)
		}
	}
	lines := make([]Line, len(texts))
	for i, text := range texts {
		lines[i].Text = human.Cut(text, width)
	}
	return lines
}

// A column has a fixed width and is right-aligned; the first one, the name, takes
// what is left.
type column struct {
	title string
	width int
	need  int // the width of the screen from which on it is shown
	text  func(r *Row, ascii bool) string
}

var allColumns = columns{
	{"GPU", 3, 60, func(r *Row, _ bool) string { return number(r.GPU) }},
	{"ROUTE", 7, 30, func(r *Row, _ bool) string { return r.Route }},
	{"READ/s", 6, 30, func(r *Row, _ bool) string { return rate(r.Read) }},
	{"WRITE/s", 7, 40, func(r *Row, _ bool) string { return rate(r.Write) }},
	{"HOST/s", 6, 90, func(r *Row, _ bool) string { return rate(r.Host) }},
	{"LINK", 4, 72, func(r *Row, _ bool) string { return percent(r.Link) }},
	{"LATENCY", 7, 72, func(r *Row, ascii bool) string { return latency(r.Latency, ascii) }},
	{"ERR", 4, 50, func(r *Row, _ bool) string { return fmt.Sprint(r.Errors) }},
	{"HISTORY", 8, 80, func(r *Row, ascii bool) string { return sparkline(r.History, 8, ascii) }},
}

type columns []column

func columnsFor(width int) (cols columns) {
	for _, c := range allColumns {
		if width >= c.need {
			cols = append(cols, c)
		}
	}
	return cols
}

func (cols columns) nameWidth(width int) int {
	for _, c := range cols {
		width -= c.width + 1
	}
	return max(width, 1)
}

func (cols columns) row(r *Row, width, pids int, ascii bool) string {
	name := "  " + human.Shorten(human.Name(atomicfile.Target(r.File)), cols.nameWidth(width)-2)
	if r.File == "" {
		name = fmt.Sprintf("%-*d %s", pids, r.PID, human.Name(program(r.Command)))
		if r.Ended {
			name = fmt.Sprintf("%-*d (ended) %s", pids, r.PID, human.Name(program(r.Command)))
		}
	}
	return cols.line(width, name, func(c column) string { return c.text(r, ascii) })
}

// heading is the title of the first column, as far as it has room.
func heading(width, pids int) string {
	title := fmt.Sprintf("%-*s COMMAND, FILE", pids, "PID")
	if len(title) > width {
		title = strings.TrimSuffix(title, ", FILE")
	}
	return title
}

// pidWidth is the width of the longest process ID, so that commands begin in one column.
func pidWidth(list []*Row) int {
	n := len("PID")
	for _, r := range list {
		n = max(n, len(fmt.Sprint(r.PID)))
	}
	return n
}

// program is a command line without the directory of its program, which would take the room
// of what distinguishes it.
func program(command string) string {
	name, arguments, some := strings.Cut(command, " ")
	if name = path.Base(name); some {
		name += " " + arguments
	}
	return name
}

func (cols columns) line(width int, name string, text func(column) string) string {
	var b strings.Builder
	n := cols.nameWidth(width)
	name = human.Cut(name, n)
	b.WriteString(name + strings.Repeat(" ", n-human.Columns(name)))
	for _, c := range cols {
		cell := human.Cut(text(c), c.width)
		b.WriteString(strings.Repeat(" ", c.width+1-human.Columns(cell)) + cell)
	}
	return b.String()
}

func number(n int) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func rate(bps float64) string {
	switch v, unit := human.Decimal(bps); {
	case bps == 0:
		return "-"
	case v == bps:
		return fmt.Sprintf("%.0f", bps)
	default:
		return human.Digits(v) + unit
	}
}

func percent(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

func latency(d time.Duration, ascii bool) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return fmt.Sprintf("%d%ss", d.Microseconds(), map[bool]string{true: "u", false: "µ"}[ascii])
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.0fs", d.Seconds())
}

// sparkline draws rates as bars of the largest.
func sparkline(rates []float64, width int, ascii bool) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	if ascii {
		bars = []rune("_.-:=+*#")
	}
	most := 0.0
	for _, r := range rates {
		most = max(most, r)
	}
	if most == 0 {
		return ""
	}
	rates = rates[max(0, len(rates)-width):]
	out := make([]rune, len(rates))
	for i, r := range rates {
		out[i] = bars[min(int(r/most*float64(len(bars))), len(bars)-1)]
	}
	return string(out)
}
