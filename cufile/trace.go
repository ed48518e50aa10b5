package cufile

import (
	"time"

	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/route"
)

// begin is when a run of several requests begins; 0 if nothing is recorded.
func (b *batch) begin() time.Duration {
	if !b.trace.On() {
		return 0
	}
	return ladder.Now()
}

// record records a run of the requests from the i'th on. began is that of several. When one
// alone ended is known, and how long it took is in its receipt.
func (b *batch) record(i int, res []route.Receipt, began time.Duration, err error) {
	if !b.trace.On() || len(res) > 1 && began == 0 { // or since the run began
		return
	}
	op, f := &b.ops[i], b.uses[i].file
	c := trace.Call{
		File: &f.traced, Named: f, Dir: op.Dir, GPU: op.Mem.Dev, Off: op.Off,
		Begin: began, End: op.Ended, Turn: op.Turn, Failed: err != nil,
	}
	if len(res) > 1 || c.End == 0 { // several, or one that no route took
		c.End, c.Turn = ladder.Now(), 0
	}
	if len(res) == 1 {
		c.Begin = max(0, c.End-res[0].Time)
	}
	b.trace.Transfer(&c, res)
}
