package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/ladder"
)

// String is the report as text: of a path the verdict first and, unless it is to be
// verbose, no more than a screen of 24 lines has room for.
func (r *Report) String() string {
	var t text
	if r.Path != nil {
		t.verdict(r.Path, r.Software != nil, r.Width)
		if !r.Verbose {
			t.brief(r.Path)
			return t.String()
		}
		t.path(r.Path)
		t.line("")
	}
	t.line("machine  %s: %s", r.Machine.Kind, r.Machine.Why)
	if r.Machine.Driver != "" {
		t.line("driver   %s, CUDA %s", r.Machine.Driver, r.Machine.Version)
	}
	t.line("kernel   %s", r.Kernel)
	if len(r.Off) > 0 {
		t.line("off      %s (%s)", strings.Trim(fmt.Sprint(r.Off), "[]"), ladder.RoutesSwitch)
	}
	t.line("\nTHIS COMPUTER")
	if r.NoGPU != "" {
		t.line("no GPU   %s", r.NoGPU)
	}
	t.devices(&r.Devices, r.Verbose)
	t.line("limits")
	for _, l := range r.Limits {
		t.line("         %-32s %-8s %s", l.Name, l.Value, l.Note)
		t.fix(l.Fix)
	}
	if r.Software != nil {
		t.line("\nSOFTWARE MACHINE, which commands use: all of it is emulated")
		t.devices(r.Software, r.Verbose)
	}
	if r.Path == nil && !r.Verbose {
		t.line("\nculvert check PATH says which way the data of a file goes, and what would make it faster.")
	}
	return t.String()
}

type text struct{ strings.Builder }

// line prints a line without blanks at its end.
func (t *text) line(format string, args ...any) {
	t.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

func (t *text) item(name, state, purpose, note string) {
	t.line("         %-24s %-8s %s  %s", name, state, purpose, note)
}

// fix prints a fix on a line of its own: beside a purpose, both were folded into a few
// columns of a terminal.
func (t *text) fix(fix string) {
	if fix != "" {
		t.line("           fix: %s", fix)
	}
}

func (t *text) devices(d *Devices, verbose bool) {
	for _, g := range d.GPUs {
		t.gpu(g, verbose)
	}
	t.line("nodes")
	for _, n := range d.Nodes {
		note := cmp.Or(after("version ", n.Version), n.Note)
		if t.item(n.Path, n.state(), n.For, note); note == "" {
			t.fix(n.Fix)
		}
	}
	t.line("modules")
	for _, m := range d.Modules {
		state := "missing"
		if m.Loaded {
			state = "loaded"
		}
		note := strings.TrimSpace(m.Detail + "  " + m.Note)
		if t.item(m.Name, state, m.For, note); note == "" {
			t.fix(m.Fix)
		}
	}
	t.nics(d)
}

func (n *Node) state() string {
	switch {
	case n.Usable:
		return "ok"
	case n.Present:
		return n.Err
	}
	return "missing"
}

// after puts a word before a text, unless that is empty.
func after(word, text string) string {
	if text == "" {
		return ""
	}
	return word + text
}

func (t *text) gpu(g GPU, verbose bool) {
	t.line("gpu:%d    %s  %s", g.Index, g.Name, g.PCI)
	t.line("         %s", g.UUID)
	t.line("         %s of memory, %s free", human.Size(int64(g.Memory)), human.Size(int64(g.Free)))
	if g.Err != "" {
		t.line("         error: %s", g.Err)
	}
	if !verbose {
		return
	}
	for _, a := range g.Attributes {
		value := fmt.Sprint(a.Value)
		if !a.Known {
			value = "unknown to this driver"
		}
		t.line("         %-45s %s", a.Name, value)
	}
}

// title names the file, and the model that it belongs to.
func (p *Path) title() string {
	name := human.Name(p.File)
	if p.Model != "" && p.Model != p.File {
		name = fmt.Sprintf("%s (%s)", human.Name(p.Model), name)
	}
	return name
}

// place says how much there is, and on what.
func (p *Path) place() string {
	place := fmt.Sprintf("%s on %s", human.Size(p.Size), p.Facts.FS)
	if p.Stack == nil && p.Mount == nil {
		place = fmt.Sprintf("%s, %s", human.Size(p.Size), p.Facts.FS)
	}
	if p.Directory {
		place = fmt.Sprintf("a new file in this directory, on %s", p.Facts.FS)
	}
	if p.Mount != nil {
		place += fmt.Sprintf(" at %s (%s)", p.Mount.Point, p.Mount.Source)
	}
	return place
}

// brief is what else there is to know about a path at first sight.
func (t *text) brief(p *Path) {
	facts := p.title() + ": " + p.place()
	if p.Resident != nil && !p.Directory && p.Size > 0 {
		facts += fmt.Sprintf(", %d%% in the page cache", human.Percent(*p.Resident, p.Size))
	}
	t.line("\n%s", facts)
	t.uses(p)
	t.line("culvert check -v shows the layers of the file, declined routes and the machine.")
}

// path is everything about a path.
func (t *text) path(p *Path) {
	t.line("\n%s <-> gpu:%d", p.title(), p.GPU)
	t.line("         %s", p.place())
	if p.Resident != nil && !p.Directory {
		t.line("         in the page cache: %s", human.Size(*p.Resident))
	}
	d := p.Facts.Direct
	t.line("         O_DIRECT: %v, offset alignment %d, memory alignment %d (%s)", d.Supported, d.OffAlign, d.MemAlign, d.Source)
	if p.Stack != nil {
		for i, line := range p.Stack.Tree() {
			title := ""
			if i == 0 {
				title = "stack"
			}
			t.line("%-8s %s", title, line)
		}
	}
	t.uses(p)
	for _, d := range p.Declined {
		t.line("         not %s", d)
	}
}

// uses says which bytes take which route.
func (t *text) uses(p *Path) {
	for i, u := range p.Uses {
		if i == 0 {
			t.line("%-8s %-8s %s", "route", u.Route, u.For)
		} else {
			t.line("%-8s %-8s %s", "", u.Route, cmp.Or(u.For, "everything else"))
		}
	}
}
