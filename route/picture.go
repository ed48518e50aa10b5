package route

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hops are the places that bytes pass on each route between file and GPU.
var hops = [numIDs][]string{
	Vendor: {"libcufile"},
	NVFS:   {"drive DMA"},
	P2PDMA: {"drive DMA"},
	NVMe:   {"drive DMA"},
	Bar:    {"BAR1"},
	Ring:   {"pinned ring"},
	Mapped: {"page cache, pinned"},
	RDMA:   {"NIC"},
	Host:   {"host memory"},
}

// Picture draws the path of the bytes as text, one line per route taken:
//
//	in.bin ══ 4.0 MiB ══▶ [host memory] ══ 4.0 MiB ══▶ gpu:0
func (r *Receipt) Picture(file, gpu string) string {
	var b strings.Builder
	file = Name(file)
	for _, e := range r.byRoute() {
		from, to := file, gpu
		if r.Dir == Write {
			from, to = gpu, file
		}
		arrow := " ══ " + Size(e.n) + " ══▶ "
		b.WriteString(from)
		for _, h := range hops[e.id] {
			b.WriteString(arrow + "[" + h + "]")
		}
		b.WriteString(arrow + to + "\n")
	}
	return b.String()
}

// Name prints the name of a file or a tensor, which others have chosen, in a line:
// quoted where it is empty, or would break the line or steer a terminal.
func Name(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// Size prints a number of bytes for people: "4.0 MiB".
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v /= 1 << 10; v < 1<<10 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
