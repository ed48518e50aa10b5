package cufile

import (
	"time"

	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/route"
)

// traced returns where to record a run of n requests, and, of several, when it began; nil
// if nothing is recorded.
func (b *batch) traced(n int) (tr *trace.Buffer, began time.Duration) {
	if !trace.On() {
		return nil, 0
	}
	if tr = b.trace.Use(); tr != b.trace {
		b.trace = tr
	}
	if n > 1 {
		began = ladder.Now()
	}
	return tr, began
}

// record records a run of the requests from the i'th on. When one alone ended is known,
// and how long it took is in its receipt.
func (b *batch) record(tr *trace.Buffer, i int, res []route.Receipt, began time.Duration, err error) {
	op, f := &b.ops[i], b.uses[i].file
	if len(res) == 1 && err == nil && tr.One(&f.traced, &res[0], op.Mem.Dev, op.Off, op.Ended, op.Turn) {
		return
	}
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
	tr.Transfer(&c, res)
}
