package perftest

import (
	"encoding/binary"
	"math"
)

// Version is the version that release 4.5 sends. Others have another exchange.
const Version = "6.06"

// Sizes of items in bytes.
const (
	VersionSize = 16
	NumberSize  = 4 // cycle, cache line
	MTUSize     = 2
	ReportSize  = 40
)

// Values of x86-64 hosts.
const (
	Cycle     = 4096
	CacheLine = 64
)

// Done is the last message of both ends.
const Done = "done\x00"

// A Report is the result of a bandwidth test. Rates are in MiB and in millions of
// messages per second.
type Report struct {
	Size       uint64
	Iterations uint64
	Peak       float64
	Average    float64
	Messages   float64
}

// Append adds the report to b: five numbers of 8 bytes, big-endian. They are exchanged
// one by one.
func (r Report) Append(b []byte) []byte {
	e := binary.BigEndian
	b = e.AppendUint64(b, r.Size)
	b = e.AppendUint64(b, r.Iterations)
	for _, f := range []float64{r.Peak, r.Average, r.Messages} {
		b = e.AppendUint64(b, math.Float64bits(f))
	}
	return b
}

// ParseReport reads a report.
func ParseReport(b [ReportSize]byte) Report {
	e := binary.BigEndian
	f := func(at int) float64 { return math.Float64frombits(e.Uint64(b[at:])) }
	return Report{e.Uint64(b[:]), e.Uint64(b[8:]), f(16), f(24), f(32)}
}
