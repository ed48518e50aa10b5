package pythonapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/clib/internal/handle"
	store "github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/tensor"
)

// A described tensor has a name, a type and a shape.
type described struct {
	Name  string       `json:"name"`
	Dtype tensor.Dtype `json:"dtype"`
	Shape []int64      `json:"shape"`
	Bytes int64        `json:"bytes"`
	GPU   int          `json:"gpu"`            // of a plan
	File  int          `json:"file,omitempty"` // of an open model
}

// An openedModel has its headers in memory, and at most one of its files open.
type openedModel struct {
	*tensor.Model
	segments *tensor.SegmentReader
}

type openRequest struct {
	Path string `json:"path"`
}

type openAnswer struct {
	Model    handle.ID         `json:"model"`
	Files    []string          `json:"files"`
	Metadata map[string]string `json:"metadata"` // null if no file has any
	Tensors  []described       `json:"tensors"`  // by file and offset
}

// openModel reads the headers of a model.
func (a *API) openModel(ctx context.Context, q *openRequest) (*openAnswer, error) {
	m, err := openPath(ctx, q.Path)
	if err != nil {
		return nil, err
	}
	ans := &openAnswer{Metadata: m.Metadata(), Tensors: make([]described, len(m.Tensors))}
	for i, info := range m.Tensors {
		ans.Tensors[i] = described{Name: info.Name, Dtype: info.Dtype, Shape: info.Shape, Bytes: info.Len, File: info.File}
	}
	for _, f := range m.Files {
		ans.Files = append(ans.Files, f.Path)
	}
	segments := tensor.NewSegmentReader(m)
	ans.Model, err = a.add(&openedModel{m, segments}, segments.Close)
	return ans, err
}

// openPath opens a model. If the call is cancelled, it does not wait for a server that
// does not answer.
func openPath(ctx context.Context, path string) (*tensor.Model, error) {
	if !store.IsURL(path) {
		return tensor.Open(path)
	}
	var m *tensor.Model
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer guard(&err)
		m, err = tensor.Open(path)
	}()
	select {
	case <-done:
		return m, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A planRequest says which part of an open model, or of one at a path, goes where.
type planRequest struct {
	Model handle.ID `json:"model"`
	Path  string    `json:"path"`
	GPUs  []int     `json:"gpus"` // none: host memory

	// A part of the model, in the syntax of the command line.
	Part  string   `json:"plan"`
	Only  []string `json:"only"`
	Rules []string `json:"rules"`
	Order string   `json:"order"`
	// PerTensor gives each tensor an allocation of its own.
	PerTensor bool `json:"per_tensor"`
	// Cache is how the files use the page cache: auto, keep or avoid.
	Cache string `json:"cache"`

	// Or one tensor, or a part of it: for each dimension a range and, if it is not
	// 1, a step. Squeeze are dimensions of length 1 to leave out of the shape.
	Tensor  *string    `json:"tensor"`
	Ranges  [][3]int64 `json:"ranges"`
	Squeeze []int      `json:"squeeze"`
}

type planAnswer struct {
	Plan    handle.ID   `json:"plan"`
	Tensors []described `json:"tensors"`
}

// hostRead limits a read into host memory, so that several threads share a large
// tensor.
const hostRead = 8 << 20

func (a *API) plan(ctx context.Context, q *planRequest) (*planAnswer, error) {
	mode, err := q.cacheMode()
	if err != nil {
		return nil, err
	}
	if mode == route.CacheAvoid {
		return nil, requestError{errors.New("a load into host memory uses the page cache (fix: cache=\"auto\")")}
	}
	p, err := a.planFor(ctx, q)
	if err != nil {
		return nil, err
	}
	ans := &planAnswer{Tensors: make([]described, len(p.Tensors))}
	for i := range p.Tensors {
		t := &p.Tensors[i]
		ans.Tensors[i] = described{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape, Bytes: int64(t.Len), GPU: p.Buffers[t.Buffer].Device}
	}
	ans.Plan, err = a.add(p, func() error { return nil })
	return ans, err
}

func (q *planRequest) cacheMode() (route.CacheMode, error) {
	mode, err := route.ParseCacheMode(q.Cache)
	if err != nil {
		return mode, requestError{err}
	}
	return mode, nil
}

// planFor plans for an open model, or opens one.
func (a *API) planFor(ctx context.Context, q *planRequest) (*tensor.Plan, error) {
	if q.Path != "" {
		m, err := openPath(ctx, q.Path)
		if err != nil {
			return nil, err
		}
		return q.plan(m)
	}
	m, _, err := lookup[*openedModel](a, q.Model)
	if err != nil {
		return nil, err
	}
	return q.plan(m.Model)
}

func (q *planRequest) plan(m *tensor.Model) (*tensor.Plan, error) {
	opts := &tensor.PlanOptions{PerTensor: q.PerTensor}
	gpus := q.GPUs
	if len(gpus) == 0 { // host memory is the only device
		gpus, opts.PerTensor, opts.MaxRead = []int{0}, true, hostRead
	}
	plan := q.planMany
	if q.Tensor != nil {
		plan = q.planOne
	}
	p, err := plan(m, gpus, opts)
	if err != nil {
		return nil, requestError{err}
	}
	return p, nil
}

func (q *planRequest) planMany(m *tensor.Model, gpus []int, opts *tensor.PlanOptions) (*tensor.Plan, error) {
	sel, err := tensor.ParseSelection(q.Part, q.Rules...)
	if err != nil {
		return nil, err
	}
	sel.Only = q.Only
	switch q.Order {
	case "", "file":
	case "layer":
		opts.ByLayer = true
	default:
		return nil, fmt.Errorf("order %q: want file or layer", q.Order)
	}
	// An empty model is valid, but has nothing to plan.
	if len(m.Tensors) == 0 && len(q.Only) == 0 {
		return tensor.NewPlan(m, nil, opts)
	}
	parts, err := sel.Spread(gpus)
	if err != nil {
		return nil, err
	}
	return tensor.NewPlan(m, parts, opts)
}

func (q *planRequest) planOne(m *tensor.Model, gpus []int, opts *tensor.PlanOptions) (*tensor.Plan, error) {
	info, ok := m.Lookup(*q.Tensor)
	if !ok {
		return nil, fmt.Errorf("%s does not contain tensor %q%s", m.Path, *q.Tensor, similar(m, *q.Tensor))
	}
	if len(gpus) > 1 {
		return nil, fmt.Errorf("one tensor goes to one GPU, not to %d", len(gpus))
	}
	p, err := m.PlanSlice(info, q.Ranges, gpus[0], opts)
	if err != nil {
		return nil, err
	}
	p.Tensors[0].Shape, err = squeeze(p.Tensors[0].Shape, q.Squeeze)
	return p, err
}

// squeeze leaves dimensions of length 1 out of a shape.
func squeeze(shape []int64, dims []int) ([]int64, error) {
	out := []int64{}
	for i, n := range shape {
		if !slices.Contains(dims, i) {
			out = append(out, n)
		} else if n != 1 {
			return nil, fmt.Errorf("dimension %d has %d elements: only 1 can be left out", i, n)
		}
	}
	return out, nil
}

// similar hints at a tensor whose name ends like the missing one, as when a prefix
// was forgotten.
func similar(m *tensor.Model, name string) string {
	for _, e := range m.Tensors {
		if name != "" && e.Name != "" && (strings.HasSuffix(e.Name, "."+name) || strings.HasSuffix(name, "."+e.Name)) {
			return fmt.Sprintf(": did you mean %q?", e.Name)
		}
	}
	return ""
}
