package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

// A Verdict is the answer that most people want of a report on a path.
type Verdict struct {
	// Direct means that the drive or the library moves the data without host memory.
	Direct bool     `json:"direct"`
	Route  route.ID `json:"route"`  // of most bytes
	Answer string   `json:"answer"` // one sentence
	// Next is the change that would help most: the best declined route that has a fix.
	Next *route.Decline `json:"next,omitempty"`
}

// ways say how the bytes of each route get to the GPU.
var ways = map[route.ID]string{
	route.Vendor: "NVIDIA's libcufile moves the data directly between drive and GPU memory",
	route.NVFS:   "the drive moves the data directly to and from GPU memory, by nvidia-fs",
	route.P2PDMA: "the drive moves the data directly to and from GPU memory, by peer-to-peer DMA",
	route.NVMe:   "the drive moves the data directly to and from GPU memory, by the user-space driver",
	route.RDMA:   "the network adapter moves the data to and from GPU memory",
	route.Bar:    "the processor stores the data straight into GPU memory, through BAR1",
	route.Ring:   "the data goes once through pinned host memory",
	route.Mapped: "the data goes through the page cache, pinned in place",
	route.Host:   "the data goes through host memory, with a copy",
}

// mainRoute is the route of most bytes of size: routes move whole blocks, BAR1 takes
// small reads, and the last of the routes takes everything else.
func mainRoute(uses []route.Use, size int64) route.ID {
	fits := slices.IndexFunc(uses, func(u route.Use) bool { return size == 0 || u.Block <= size })
	switch {
	case fits < 0:
		return route.None
	case fits == 0 && uses[0].Route == route.Bar:
		return uses[len(uses)-1].Route
	}
	return uses[fits].Route
}

// verdict judges the routes of a path with so many bytes; 0 if that is not known.
func verdict(uses []route.Use, size int64, declined []*route.Decline) Verdict {
	most := mainRoute(uses, size)
	v := Verdict{Direct: most.Direct(), Route: most}
	answer := "Not direct"
	if v.Direct {
		answer = "Direct"
	}
	v.Answer = fmt.Sprintf("%s: %s (route %s).", answer, cmp.Or(ways[most], "no route is usable"), most)
	switch {
	case most == route.None || most == uses[0].Route:
	case uses[0].Route == route.Bar:
		v.Answer += " Small reads go straight into GPU memory, through BAR1."
	default:
		v.Answer += fmt.Sprintf(" The file is smaller than a block of route %s, which moves larger ones.", uses[0].Route)
		if uses[0].Route == route.NVFS { // the client rounds up to a block
			v.Answer += " If that route is required, it moves this one, too: slower, in a whole block."
		}
	}
	for _, d := range declined {
		if d.Fix != "" && d.Route < most {
			v.Next = d
			break
		}
	}
	return v
}

// verdict prints the answer, the way of the bytes, and what to do next.
func (t *text) verdict(p *Path, soft bool, width int) {
	t.line("%s", p.Verdict.Answer)
	if soft {
		t.line("This is the software machine: the answer says nothing about hardware.")
	}
	t.fast(p)
	drawn := route.Receipt{Dir: route.Read, Bytes: p.Size}
	drawn.By[p.Verdict.Route] = p.Size
	if p.Size > 0 {
		t.line("\n  %s", strings.TrimSpace(drawn.Diagram(p.start(), fmt.Sprintf("gpu:%d", p.GPU))))
	}
	if p.Topology != nil {
		t.line("")
		t.topology(p.Topology, width)
	}
	if next := p.Verdict.Next; next != nil {
		t.line("\nWhat would help most: route %s. It is declined now (%s): %s.", next.Route, next.Test, next.Evidence)
		t.line("  fix: %s", next.Fix)
	} else if !p.Verdict.Direct && !p.Best.Direct() && len(p.Declined) > 0 {
		t.line("\nNo change is known that would help.")
	}
}

// fast says what measures the path, and what is known about the rate.
func (t *text) fast(p *Path) {
	pinned := ""
	if p.Pinned > 0 {
		pinned = "pinned-copy rate " + human.Speed(p.Pinned)
	}
	switch {
	case p.Measure != "" && pinned != "":
		t.line("How fast: %s (%s)", p.Measure, pinned)
	case p.Measure != "":
		t.line("How fast: %s measures it", p.Measure)
	case pinned != "":
		t.line("How fast: %s", pinned)
	}
}

// start names where the bytes come from: the drive, if there is one.
func (p *Path) start() string {
	if p.Stack != nil {
		isDrive := func(l blockstack.Layer) bool { return l.Kind == blockstack.Drive }
		switch i := slices.IndexFunc(p.Stack.Layers, isDrive); {
		case i >= 0 && slices.ContainsFunc(p.Stack.Layers[i+1:], isDrive):
			return "drives"
		case i >= 0:
			return p.Stack.Layers[i].Name
		}
	}
	return human.Name(p.Facts.FS)
}
