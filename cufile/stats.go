package cufile

import (
	"sync/atomic"

	"github.com/culvert-io/culvert/route"
)

// Stats sums transfers. Its counters may be read while they run.
type Stats struct {
	Reads, Writes         atomic.Int64
	ReadErrs, WriteErrs   atomic.Int64
	ReadBytes, WriteBytes atomic.Int64
	HostBytes             atomic.Int64
}

func (s *Stats) add(r *route.Receipt, err error) {
	ops, errs, bytes := &s.Reads, &s.ReadErrs, &s.ReadBytes
	if r.Dir == route.Write {
		ops, errs, bytes = &s.Writes, &s.WriteErrs, &s.WriteBytes
	}
	if err != nil {
		errs.Add(1)
	}
	ops.Add(1)
	bytes.Add(r.Bytes)
	s.HostBytes.Add(r.Host.Bytes)
}
