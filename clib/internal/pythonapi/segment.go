package pythonapi

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/tensor"
)

// ReadSegment reads n bytes at off of tensor i of an open model into memory of the
// caller. Small tensors are many: a request and a receipt in JSON would take ten times
// as long as the read.
func (a *API) ReadSegment(model handle.ID, i int, off int64, to cmem.Ptr, n uint64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(&err)
	m, _, err := lookup[*openedModel](a, model)
	if err != nil {
		return err
	}
	if to == 0 && n > 0 {
		return errNoAddress
	}
	return m.segments.Read(i, off, cmem.Bulk(to, int(n)))
}

// A segmentRequest has what the caller knows of a call of ReadSegment.
type segmentRequest struct {
	Model   string  `json:"model"`
	File    string  `json:"file"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// segment returns the receipt of a call of ReadSegment, for callers who want one.
func (a *API) segment(_ context.Context, q *segmentRequest) (*receiptAnswer, error) {
	r := &receipt{
		Op: "load", Model: q.Model, GPUs: []int{}, Tensors: 1, Wanted: q.Bytes, Bytes: q.Bytes,
		First: q.Seconds, Last: q.Seconds, Seconds: q.Seconds, Files: []tensor.FileReport{},
	}
	r.Phases.Move = q.Seconds
	if q.Bytes > 0 {
		took := time.Duration(q.Seconds * float64(time.Second))
		r.Files = append(r.Files, tensor.SegmentReport(q.File, q.Bytes, took))
		r.GBps = float64(q.Bytes) / max(took.Seconds(), 1e-9) / 1e9
	}
	return &receiptAnswer{r}, nil
}
