package pythonapi

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

type saveRequest struct {
	Path     string            `json:"path"`
	Metadata map[string]string `json:"metadata"`
	Tensors  []saveTensor      `json:"tensors"`
}

// A saveTensor lies in host memory at an address, on a GPU at an address, or in
// loaded memory under a number.
type saveTensor struct {
	Name    string       `json:"name"`
	Dtype   tensor.Dtype `json:"dtype"`
	Shape   []int64      `json:"shape"`
	Bytes   int64        `json:"bytes"`
	Address uint64       `json:"address"`
	GPU     *int         `json:"gpu"` // none: host memory
	Memory  handle.ID    `json:"memory"`
	Index   int          `json:"index"`
}

type saveAnswer struct {
	Receipt *saveReceipt `json:"receipt"`
}

type saveReceipt struct {
	Op       string  `json:"op"`
	File     string  `json:"file"`
	Manifest string  `json:"manifest"`
	Tensors  int     `json:"tensors"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	GBps     float64 `json:"gb_per_second"`
	// Phases are where the time went, in seconds, one after the other.
	Phases struct {
		Reserve float64 `json:"reserve"`
		Write   float64 `json:"write"`
		Sync    float64 `json:"sync"`
		Publish float64 `json:"publish"`
	} `json:"phases"`
}

// save writes tensors into a file.
func (d *API) save(ctx context.Context, q *saveRequest) (*saveAnswer, error) {
	start := time.Now()
	took := &tensor.SaveTimes{}
	opts := &tensor.SaveOptions{Metadata: q.Metadata, Times: took}
	sources := make([]tensor.Source, len(q.Tensors))
	for i := range q.Tensors {
		t := &q.Tensors[i]
		data, dev, err := d.source(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("saving tensor %q: %w", t.Name, err)
		}
		if dev != nil && opts.Buffer == nil {
			opts.Buffer = func(n int) ([]byte, func(), error) { return pinned(dev, n) }
		}
		sources[i] = tensor.Source{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape, Data: data}
	}
	m, err := tensor.Save(ctx, q.Path, sources, opts)
	if err != nil {
		return nil, err
	}
	r := &saveReceipt{
		Op: "save", File: q.Path, Manifest: tensor.ManifestPath(q.Path),
		Tensors: len(m.Tensors), Bytes: m.Size, Seconds: time.Since(start).Seconds(),
	}
	r.Phases.Reserve, r.Phases.Write = took.Reserve.Seconds(), took.Write.Seconds()
	r.Phases.Sync, r.Phases.Publish = took.Sync.Seconds(), took.Publish.Seconds()
	r.GBps = float64(r.Bytes) / r.Seconds / 1e9
	return &saveAnswer{r}, nil
}

// source is where the bytes of a tensor come from, and the GPU that has them.
func (d *API) source(ctx context.Context, t *saveTensor) (io.ReaderAt, gpu.Device, error) {
	switch {
	case t.Memory != 0:
		mem, _, err := lookup[*loaded](d, t.Memory)
		if err != nil {
			return nil, nil, err
		}
		if t.Index < 0 || t.Index >= len(mem.tensors) {
			return nil, nil, fmt.Errorf("number %d of %d", t.Index, len(mem.tensors))
		}
		if err := mem.wait(ctx); err != nil {
			return nil, nil, err
		}
		span := mem.tensors[t.Index].Span
		if span.Len != uint64(t.Bytes) {
			return nil, nil, fmt.Errorf("it has %d bytes, not %d", span.Len, t.Bytes)
		}
		dev, err := mem.device(span.Dev)
		return tensor.DeviceBytes(dev, span), dev, err
	case t.GPU != nil:
		dev, err := d.Device(*t.GPU)
		span := gpu.Span{Dev: *t.GPU, Base: gpu.Addr(t.Address), Len: uint64(t.Bytes)}
		return tensor.DeviceBytes(dev, span), dev, err
	}
	return hostBytes{cmem.Ptr(t.Address), t.Bytes}, nil, nil
}

// hostBytes reads memory of the caller.
type hostBytes struct {
	at cmem.Ptr
	n  int64
}

func (h hostBytes) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > h.n || int64(len(p)) > h.n-off {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, cmem.Slice[byte](h.at+cmem.Ptr(off), len(p))), nil
}

// pinned allocates host memory that a GPU copies to at full speed.
func pinned(dev gpu.Device, n int) ([]byte, func(), error) {
	a, err := dev.Alloc(gpu.KindHost, uint64(n), 0)
	if err != nil {
		return nil, nil, err
	}
	return gpu.HostBytes(a, uint64(n)), func() { _ = dev.Free(a) }, nil
}
