package tensor

import (
	"slices"
	"time"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// A Report says what a load has done.
type Report struct {
	Tensors  int           // yielded
	Verified int           // of them
	Bytes    int64         // read, with those between tensors
	Copied   int64         // from one GPU to another
	Wanted   int64         // of tensors in the plan
	First    time.Duration // until the first tensor was yielded
	Last     time.Duration // until the last
	Open     time.Duration // opening files and reading manifests, before the transfer
	Alloc    time.Duration // allocating device memory, before the transfer
	Moved    time.Duration // until the last byte was on its device; it may not be verified yet
	Release  time.Duration // closing files and registrations, after the transfer
	Files    []FileReport  // that were read
}

// A FileReport is the sum of the reads of one file. Its receipt's time is the sum
// over reads that may have run concurrently.
type FileReport struct {
	Path    string        `json:"path"`
	Receipt route.Receipt `json:"receipt"`
}

// Rate returns bytes per second over the whole load.
func (r *Report) Rate() float64 {
	if r.Last <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Last.Seconds()
}

func newReport(p *Plan) Report {
	r := Report{Wanted: p.Totals().Wanted}
	for _, path := range p.Files {
		r.Files = append(r.Files, FileReport{Path: object.Redact(path)})
	}
	return r
}

func (r *Report) add(file int, rec *route.Receipt) {
	r.Bytes += rec.Bytes
	r.Files[file].Receipt.Add(rec)
}

func (r *Report) yielded(t *Tensor, since time.Duration) {
	if r.Tensors == 0 {
		r.First = since
	}
	r.Tensors++
	if t.Verified {
		r.Verified++
	}
	r.Last = since
}

// clone leaves out the files that were not read.
func (r *Report) clone() Report {
	c := *r
	c.Files = slices.DeleteFunc(slices.Clone(r.Files), func(f FileReport) bool { return f.Receipt.Bytes == 0 })
	return c
}
