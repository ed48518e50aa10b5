package route

import (
	"fmt"
	"strings"

	"github.com/culvert-io/culvert/internal/human"
)

// ways say how each route moves bytes, for people.
var ways = [numIDs]string{
	Vendor: "by NVIDIA's libcufile",
	NVFS:   "by DMA of the drive, past host memory",
	P2PDMA: "by DMA of the drive, past host memory",
	NVMe:   "by DMA of the drive, past host memory",
	RDMA:   "by DMA of the network adapter, past host memory",
	Bar:    "by the CPU straight into GPU memory",
	Ring:   "through pinned host memory",
	Mapped: "from pinned pages of the page cache",
	Host:   "through host memory",
}

// Sentence says in one line what was moved, how fast and which way:
//
//	read 64.0 MiB in 1.3 ms, 51.7 GB/s (93 % of the link), through pinned host memory (ring)
//
// String has every field.
func (r *Receipt) Sentence() string {
	s := fmt.Sprintf("%s in %s", r.amount(), human.Duration(r.Time))
	if r.Time > 0 && r.Bytes > 0 {
		s += ", " + human.Speed(r.Rate())
		if share := r.Share(); share > 0 && r.Machine != SoftwareMachine {
			s += fmt.Sprintf(" (%.0f %% of the link)", 100*share)
		}
	}
	return s + ", " + r.way(true)
}

// Way is the part of the sentence that says which way the bytes went: "through host
// memory (host)".
func (r *Receipt) Way() string { return r.way(false) }

// way has the amount of each route if there are several. The first may be left out where
// no total is before it, which would be read as the amount of that route.
func (r *Receipt) way(first bool) string {
	var b strings.Builder
	parts := r.byRoute()
	for i, e := range parts {
		if i > 0 {
			b.WriteString(", ")
		}
		if i > 0 || first && len(parts) > 1 {
			b.WriteString(human.Size(e.n) + " ")
		}
		fmt.Fprintf(&b, "%s (%s)", ways[e.id], e.id)
	}
	if r.Bytes == 0 {
		b.WriteString("by no route")
	}
	switch r.Arrival {
	case ArrivalProved:
		b.WriteString(", arrival proved")
	case ArrivalSampled:
		b.WriteString(", arrival checked by samples")
	case ArrivalReported:
		b.WriteString(", arrival as the driver reports it")
	}
	if r.Retries > 0 {
		fmt.Fprintf(&b, ", %d retries", r.Retries)
	}
	if r.Machine == SoftwareMachine {
		b.WriteString(", software machine")
	}
	if r.Provider != "" {
		fmt.Fprintf(&b, ", provider=%s", r.Provider)
	}
	if r.Origin.Store != "" {
		fmt.Fprintf(&b, ", store=%s", r.Origin.Store)
	}
	if w := r.Origin.Warning(); w != "" {
		b.WriteString("; " + w)
	}
	return b.String()
}

// ofRequest are the tests of a request. Only the program that makes it can change that.
var ofRequest = map[string]bool{"alignment": true, "buffer": true, "descriptor": true}

// Advice is the change to the computer that would allow a better route: the first
// reason that has such a fix; "" if none has.
func (r *Receipt) Advice() string {
	for _, d := range r.Declined.List() {
		if d.Fix != "" && !ofRequest[d.Test] {
			return fmt.Sprintf("not by %s: %s (fix: %s)", d.Route, d.Evidence, d.Fix)
		}
	}
	return ""
}

func (r *Receipt) amount() string {
	verb := "read"
	if r.Dir == Write {
		verb = "wrote"
	}
	return verb + " " + human.Size(r.Bytes)
}
