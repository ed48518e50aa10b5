package cufile

import (
	"sync/atomic"

	"github.com/culvert-io/culvert/internal/gate"
	"github.com/culvert-io/culvert/route"
)

// Stats sums transfers.
type Stats struct {
	Reads      int64 `json:"reads"`
	Writes     int64 `json:"writes"`
	Errors     int64 `json:"errors"`
	ReadBytes  int64 `json:"read_bytes"`
	WriteBytes int64 `json:"write_bytes"`
	HostBytes  int64 `json:"host_bytes"`
}

// counters are Stats that many threads add to, each in a place of its own.
type counters [gate.Shards]shard

// A shard fills two cache lines.
type shard struct {
	ops, bytes   [2]atomic.Int64 // by direction
	errs, staged atomic.Int64
	_            [80]byte
}

func (c *counters) add(at uint32, r *route.Receipt, err error) {
	s := &c[at%gate.Shards]
	s.ops[r.Dir].Add(1)
	s.bytes[r.Dir].Add(r.Bytes)
	if r.Host.Bytes != 0 {
		s.staged.Add(r.Host.Bytes)
	}
	if err != nil {
		s.errs.Add(1)
	}
}

func (c *counters) sum() (t Stats) {
	for i := range c {
		s := &c[i]
		t.Reads += s.ops[route.Read].Load()
		t.Writes += s.ops[route.Write].Load()
		t.ReadBytes += s.bytes[route.Read].Load()
		t.WriteBytes += s.bytes[route.Write].Load()
		t.Errors += s.errs.Load()
		t.HostBytes += s.staged.Load()
	}
	return t
}
