package check

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/culvert-io/culvert/internal/human"
)

// wideDrawing is the screen from which on a drawing has addresses and link speeds;
// narrower ones have rates.
const wideDrawing = 72

// Draw draws the way over PCIe, with everything that is known.
func (top *Topology) Draw() string {
	var t text
	t.topology(top, 0)
	return t.String()
}

// topology draws the way over PCIe. A width of 0 has room for everything.
func (t *text) topology(top *Topology, width int) {
	wide := width == 0 || width >= wideDrawing
	rows, column := make([][2]string, len(top.Devices)), 0
	for i := range top.Devices {
		d := &top.Devices[i]
		rows[i] = [2]string{"  " + top.branch(i) + d.label(wide), d.Link.text(wide, d.Kind == "GPU")}
		column = max(column, utf8.RuneCountInString(rows[i][0]))
	}
	for _, r := range rows {
		t.line("%s%*s%s", r[0], column+2-utf8.RuneCountInString(r[0]), "", r[1])
	}
	for _, w := range top.Ways {
		if w.Means != "" {
			t.line("  %s to %s: %s", w.From, w.To, w.Means)
		}
	}
	for i := range top.Devices {
		if d := &top.Devices[i]; d.Link.slowed() && d.Kind != "GPU" {
			t.line("  The link of %s runs at %s; the device can do %s: look at the slot and its BIOS settings.", d.title(),
				speedText(d.Link.Speed, d.Link.Width), speedText(max(d.Link.MaxSpeed, d.Link.Speed), max(d.Link.MaxWidth, d.Link.Width)))
		}
	}
}

// branch draws what connects a device with the ones above it.
func (top *Topology) branch(i int) string {
	d := &top.Devices[i]
	if d.Depth == 0 {
		return ""
	}
	var b strings.Builder
	for depth := 1; depth < d.Depth; depth++ {
		b.WriteString(map[bool]string{true: "│  ", false: "   "}[top.more(i, depth)])
	}
	return b.String() + map[bool]string{true: "├─ ", false: "└─ "}[top.more(i, d.Depth)]
}

// more reports whether there is another device of this depth below the same bridge.
func (top *Topology) more(i, depth int) bool {
	for _, d := range top.Devices[i+1:] {
		if d.Depth <= depth {
			return d.Depth == depth
		}
	}
	return false
}

// title is "nvme0n1", or "switch 3b:00.0".
func (d *PCIDevice) title() string {
	return cmp.Or(d.Name, d.Kind+" "+shortPCI(d.PCI))
}

func (d *PCIDevice) label(wide bool) string {
	s := d.title()
	if d.Name != "" && d.Kind != "GPU" {
		s = d.Kind + " " + s
	}
	if d.Name != "" && wide {
		s += " " + shortPCI(d.PCI)
	}
	if d.Kind == "host bridge" && d.Node >= 0 && wide {
		s += fmt.Sprintf(", NUMA node %d", d.Node)
	}
	return s
}

// shortPCI leaves out the domain that most machines have only.
func shortPCI(pci string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pci, "pci"), "0000:")
}

func (l *PCILink) text(wide, gpu bool) string {
	if l == nil {
		return ""
	}
	s := human.Speed(l.Rate)
	if wide {
		speed := speedText(l.Speed, l.Width)
		if gpu && l.MaxSpeed > l.Speed {
			speed = speedText(l.MaxSpeed, l.Width)
		}
		s = fmt.Sprintf("%-12s  %9s", speed, s)
	}
	switch {
	case l.Narrowest && wide:
		s += "  ◀ narrowest"
	case l.Narrowest:
		s += " ◀"
	case wide && gpu && l.MaxSpeed > l.Speed:
		s += fmt.Sprintf("  (idle: %g GT/s)", l.Speed)
	}
	return s
}

// slowed reports whether a link runs below what the device can do.
func (l *PCILink) slowed() bool { return l != nil && (l.MaxSpeed > l.Speed || l.MaxWidth > l.Width) }

func speedText(speed float64, width int) string { return fmt.Sprintf("%g GT/s ×%d", speed, width) }
