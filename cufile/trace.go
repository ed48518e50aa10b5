package cufile

import (
	"time"

	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/route"
)

// traced returns where to record a run of the batch, and when it began; nil if nothing
// is recorded.
func (b *batch) traced() (*trace.Buffer, time.Duration) {
	if !trace.On() {
		return nil, 0
	}
	if b.trace = b.trace.Use(); b.trace == nil {
		return nil, 0
	}
	return b.trace, b.trace.Now()
}

// record records a run of the requests from the i'th on. One request alone has the time
// of its receipt.
func (b *batch) record(tr *trace.Buffer, i int, res []route.Receipt, began time.Duration, err error) {
	op := &b.ops[i]
	t := trace.Transfer{
		Dir: op.Dir, GPU: int32(op.Mem.Dev), File: b.uses[i].file.Name(), Off: op.Off, Requests: int32(len(res)),
		Begin: began, End: tr.Now(), Failed: err != nil,
	}
	for k := range res {
		t.Add(&res[k])
	}
	if len(res) == 1 {
		t.Begin = max(0, t.End-res[0].Time)
	}
	tr.Transfer(t)
}
