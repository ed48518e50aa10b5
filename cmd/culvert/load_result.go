package main

import (
	"cmp"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/tensor"
)

// A loadResult is what load prints.
type loadResult struct {
	Model    string              `json:"model"`
	GPUs     []int               `json:"gpus"`
	Tensors  int                 `json:"tensors"`
	Verified int                 `json:"verified"`
	Wanted   int64               `json:"wanted_bytes"`
	Bytes    int64               `json:"read_bytes"`
	Copied   int64               `json:"copied_bytes,omitempty"` // from GPU to GPU
	First    float64             `json:"first_tensor_seconds"`
	Last     float64             `json:"last_tensor_seconds"`
	GBps     float64             `json:"gb_per_second"`
	Ceiling  float64             `json:"ceiling_gb_per_second,omitempty"`
	Share    float64             `json:"share_of_ceiling,omitempty"`
	Soft     bool                `json:"software_machine"`
	Hold     string              `json:"hold,omitempty"`
	Files    []tensor.FileReport `json:"files"`

	verify bool
}

func (r *loadResult) report(rep tensor.Report, tensors []tensor.Tensor) {
	for _, t := range tensors {
		if t.Verified {
			r.Verified++
		}
	}
	r.Tensors, r.Wanted, r.Bytes, r.Copied, r.Files = rep.Tensors, rep.Wanted, rep.Bytes, rep.Copied, rep.Files
	r.First, r.Last, r.GBps = rep.First.Seconds(), rep.Last.Seconds(), rep.Rate()/1e9
	if r.Ceiling > 0 {
		r.Share = r.GBps / r.Ceiling
	}
}

// String says what was loaded and how fast, and which way the bytes of the files went.
func (r *loadResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "loaded %s: %d tensors, %s", human.Name(baseName(r.Model)), r.Tensors, human.Size(r.Wanted))
	switch {
	case r.Copied > 0:
		fmt.Fprintf(&b, " (read %s, %s copied from GPU to GPU)", human.Size(r.Bytes), human.Size(r.Copied))
	case r.Bytes != r.Wanted:
		fmt.Fprintf(&b, " (read %s)", human.Size(r.Bytes))
	}
	fmt.Fprintf(&b, " in %s, %s", seconds(r.Last), human.Speed(r.GBps*1e9))
	if r.Ceiling > 0 {
		fmt.Fprintf(&b, " (%.0f %% of the link's %s)", 100*r.Share, human.Speed(r.Ceiling*1e9))
	}
	fmt.Fprintf(&b, ", the first after %s", seconds(r.First))
	if r.verify {
		fmt.Fprintf(&b, ", %d verified", r.Verified)
	}
	b.WriteString(human.SoftMark(r.Soft))
	advice := ""
	for way, files := range r.byWay() {
		name := human.Name(baseName(files[0].Path))
		if len(files) > 1 {
			name = fmt.Sprintf("%d files", len(files))
		}
		fmt.Fprintf(&b, "\n%s: %s", name, way)
		advice = cmp.Or(advice, files[0].Receipt.Advice())
	}
	if advice != "" {
		b.WriteString("\n" + advice)
	}
	return b.String()
}

// byWay groups the files by the way that their bytes went, in the order of the files.
func (r *loadResult) byWay() iter.Seq2[string, []tensor.FileReport] {
	groups := map[string][]tensor.FileReport{}
	var order []string
	for _, f := range r.Files {
		way := f.Receipt.Way()
		if groups[way] == nil {
			order = append(order, way)
		}
		groups[way] = append(groups[way], f)
	}
	return func(yield func(string, []tensor.FileReport) bool) {
		for _, way := range order {
			if !yield(way, groups[way]) {
				return
			}
		}
	}
}

// Fields is the receipt of each file with every field.
func (r *loadResult) Fields() string {
	lines := make([]string, len(r.Files))
	for i := range r.Files {
		lines[i] = fmt.Sprintf("%s: %s", human.Name(baseName(r.Files[i].Path)), &r.Files[i].Receipt)
	}
	return strings.Join(lines, "\n")
}

func seconds(s float64) string { return human.Duration(time.Duration(s * float64(time.Second))) }
