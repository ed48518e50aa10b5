package pythonapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/tensor"
)

type saveRequest struct {
	Path     string            `json:"path"`
	Metadata map[string]string `json:"metadata"`
	Tensors  []saveTensor      `json:"tensors"`
	Step     *int64            `json:"step"` // Path is a directory or a prefix of checkpoints
	Keep     int               `json:"keep"` // steps that are kept; 0: all
}

// A saveTensor is at an address of host memory, at an address of a GPU, or in loaded
// memory.
type saveTensor struct {
	Name    string       `json:"name"`
	Dtype   tensor.Dtype `json:"dtype"`
	Shape   []int64      `json:"shape"`
	Bytes   int64        `json:"bytes"`
	Address uint64       `json:"address"`
	GPU     *int         `json:"gpu"` // none: host memory
	Memory  handle.ID    `json:"memory"`
	Index   int          `json:"index"` // in the memory
}

type saveReceipt struct {
	Op       string  `json:"op"`
	File     string  `json:"file"`
	Manifest string  `json:"manifest"`
	Tensors  int     `json:"tensors"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	GBps     float64 `json:"gb_per_second"`
	// Phases are the durations of the steps, in seconds, one after the other.
	Phases struct {
		Reserve float64 `json:"reserve"`
		Write   float64 `json:"write"`
		Sync    float64 `json:"sync"`
		Publish float64 `json:"publish"`
	} `json:"phases"`
	Origin route.Origin `json:"origin,omitzero"` // of an object
}

// write saves to a file or as a step, and returns its path.
func (q *saveRequest) write(ctx context.Context, sources []tensor.Source, o *tensor.SaveOptions) (string, *tensor.Manifest, error) {
	if q.Step == nil {
		m, err := tensor.Save(ctx, q.Path, sources, o)
		return q.Path, m, err
	}
	c := &tensor.Checkpoints{Dir: q.Path, Keep: q.Keep}
	if *q.Step < 0 {
		return "", nil, requestError{c.Free(*q.Step)}
	}
	m, err := c.Save(ctx, *q.Step, sources, o)
	return c.Path(*q.Step), m, err
}

// save writes tensors to a file.
func (a *API) save(ctx context.Context, q *saveRequest) (*receiptAnswer, error) {
	start := time.Now()
	sources := make([]tensor.Source, len(q.Tensors))
	for i := range q.Tensors {
		t := &q.Tensors[i]
		data, err := a.source(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("saving tensor %q: %w", t.Name, err)
		}
		sources[i] = tensor.Source{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape, Data: data}
	}
	took, origin := &tensor.SaveTimes{}, &route.Origin{}
	path, m, err := q.write(ctx, sources, &tensor.SaveOptions{Metadata: q.Metadata, Times: took, Origin: origin})
	if err != nil {
		return nil, err
	}
	r := &saveReceipt{
		Op: "save", File: path, Manifest: tensor.ManifestPath(path),
		Tensors: len(m.Tensors), Bytes: m.Size, Seconds: time.Since(start).Seconds(), Origin: *origin,
	}
	r.Phases.Reserve, r.Phases.Write = took.Reserve.Seconds(), took.Write.Seconds()
	r.Phases.Sync, r.Phases.Publish = took.Sync.Seconds(), took.Publish.Seconds()
	r.GBps = float64(r.Bytes) / r.Seconds / 1e9
	return &receiptAnswer{r}, nil
}

// source returns a reader of the tensor's bytes.
func (a *API) source(ctx context.Context, t *saveTensor) (io.ReaderAt, error) {
	switch {
	case t.Memory != 0:
		mem, _, err := lookup[*loaded](a, t.Memory)
		if err != nil {
			return nil, err
		}
		if t.Index < 0 || t.Index >= len(mem.tensors) {
			return nil, fmt.Errorf("index %d is outside its memory of %d tensors", t.Index, len(mem.tensors))
		}
		if err := mem.waitFor(ctx, t.Index); err != nil {
			return nil, err
		}
		span := mem.tensors[t.Index].Span
		if span.Len != uint64(t.Bytes) {
			return nil, fmt.Errorf("it has %d bytes, not %d", span.Len, t.Bytes)
		}
		dev, err := mem.device(span.Dev)
		return tensor.DeviceBytes(dev, span), err
	case t.GPU != nil:
		dev, err := a.Device(*t.GPU)
		span := gpu.Span{Dev: *t.GPU, Base: gpu.Addr(t.Address), Len: uint64(t.Bytes)}
		return tensor.DeviceBytes(dev, span), err
	}
	if t.Address == 0 && t.Bytes > 0 {
		return nil, errNoAddress
	}
	return bytes.NewReader(cmem.Bulk(cmem.Ptr(t.Address), int(t.Bytes))), nil
}
