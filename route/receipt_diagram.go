package route

import (
	"strings"

	"github.com/culvert-io/culvert/internal/human"
)

// hops are the stations between file and GPU on each route.
var hops = [numIDs][]string{
	Vendor: {"libcufile"},
	NVFS:   {"drive DMA"},
	P2PDMA: {"drive DMA"},
	NVMe:   {"drive DMA"},
	RDMA:   {"NIC"},
	Bar:    {"BAR1"},
	Ring:   {"pinned ring"},
	Mapped: {"page cache, pinned"},
	Host:   {"host memory"},
}

// Diagram draws the path of the bytes as text, one line per route taken:
//
//	in.bin ══ 4.0 MiB ══▶ [host memory] ══ 4.0 MiB ══▶ gpu:0
//
// On the software machine each line says so.
func (r *Receipt) Diagram(file, gpu string) string {
	var b strings.Builder
	file = human.Name(file)
	mark := ""
	if r.Machine == SoftwareMachine {
		mark = " (software machine)"
	}
	for _, e := range r.byRoute() {
		from, to := file, gpu
		if r.Dir == Write {
			from, to = gpu, file
		}
		arrow := " ══ " + human.Size(e.n) + " ══▶ "
		b.WriteString(from)
		for _, h := range hops[e.id] {
			b.WriteString(arrow + "[" + h + "]")
		}
		b.WriteString(arrow + to + mark + "\n")
	}
	return b.String()
}
