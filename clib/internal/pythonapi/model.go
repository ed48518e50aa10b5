package pythonapi

import (
	"context"
	"fmt"
	"strings"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/tensor"
)

// A described tensor has a name, a type and a shape.
type described struct {
	Name  string       `json:"name"`
	Dtype tensor.Dtype `json:"dtype"`
	Shape []int64      `json:"shape"`
	Bytes int64        `json:"bytes"`
	GPU   int          `json:"gpu"` // of a plan
}

type openRequest struct {
	Path string `json:"path"`
}

type openAnswer struct {
	Model    handle.ID         `json:"model"`
	Files    []string          `json:"files"`
	Metadata map[string]string `json:"metadata"` // null where no file has any
	Tensors  []described       `json:"tensors"`  // by file and offset
}

// openModel reads the headers of a model.
func (d *API) openModel(_ context.Context, q *openRequest) (*openAnswer, error) {
	m, err := tensor.Open(q.Path)
	if err != nil {
		return nil, err
	}
	a := &openAnswer{Tensors: make([]described, len(m.Entries()))}
	for i, e := range m.Entries() {
		a.Tensors[i] = described{Name: e.Name, Dtype: e.Dtype, Shape: e.Shape, Bytes: e.Len}
	}
	for _, f := range m.Files {
		a.Files = append(a.Files, f.Path)
		for k, v := range f.Metadata {
			if a.Metadata == nil {
				a.Metadata = map[string]string{}
			}
			a.Metadata[k] = v
		}
	}
	a.Model, err = d.add(m, func() error { return nil })
	return a, err
}

// A planRequest says which part of a model goes where.
type planRequest struct {
	Model handle.ID `json:"model"`
	GPUs  []int     `json:"gpus"` // none: host memory

	// A part of the model, as the command line names it.
	Part  string   `json:"plan"`
	Only  []string `json:"only"`
	Rules []string `json:"rules"`
	Order string   `json:"order"`
	// PerTensor gives each tensor an allocation of its own.
	PerTensor bool `json:"per_tensor"`

	// Or one tensor, or a part of one: a range for each dimension. Squeeze are
	// dimensions of length 1 to leave out of the shape.
	Tensor  *string    `json:"tensor"`
	Ranges  [][2]int64 `json:"ranges"`
	Squeeze []int      `json:"squeeze"`
}

type planAnswer struct {
	Plan    handle.ID   `json:"plan"`
	Tensors []described `json:"tensors"`
}

// A planned load knows whether it goes to the host.
type planned struct {
	plan *tensor.Plan
	host bool
}

// hostRead bounds a read into host memory, so that several threads share a large
// tensor.
const hostRead = 8 << 20

func (d *API) plan(_ context.Context, q *planRequest) (*planAnswer, error) {
	p, err := d.planned(q)
	if err != nil {
		return nil, err
	}
	a := &planAnswer{Tensors: make([]described, len(p.plan.Tensors))}
	for i := range p.plan.Tensors {
		t := &p.plan.Tensors[i]
		a.Tensors[i] = described{t.Name, t.Dtype, t.Shape, int64(t.Len), p.plan.Buffers[t.Buffer].Device}
	}
	a.Plan, err = d.add(p, func() error { return nil })
	return a, err
}

// planned plans for an open model.
func (d *API) planned(q *planRequest) (*planned, error) {
	m, _, err := lookup[*tensor.Model](d, q.Model)
	if err != nil {
		return nil, err
	}
	return q.plan(m)
}

func (q *planRequest) plan(m *tensor.Model) (p *planned, err error) {
	p = &planned{host: len(q.GPUs) == 0}
	if q.Tensor != nil {
		p.plan, err = q.planOne(m)
	} else {
		p.plan, err = q.planMany(m)
	}
	if err != nil {
		return nil, requestError{err}
	}
	return p, nil
}

func (q *planRequest) planMany(m *tensor.Model) (*tensor.Plan, error) {
	sel, err := tensor.ParseSelection(q.Part)
	if err != nil {
		return nil, err
	}
	sel.Only = q.Only
	for _, r := range q.Rules {
		rule, err := tensor.ParseSplitRule(r)
		if err != nil {
			return nil, err
		}
		sel.Rules = append(sel.Rules, rule)
	}
	opts := &tensor.PlanOptions{}
	switch q.Order {
	case "", "file":
	case "layer":
		opts.Order = tensor.ByLayer
	default:
		return nil, fmt.Errorf("order %q: want file or layer", q.Order)
	}
	if q.PerTensor {
		opts.Alloc = tensor.PerTensor
	}
	gpus := q.GPUs
	if len(gpus) == 0 { // host memory is the one device there is
		gpus, opts.Alloc, opts.MaxRead = []int{0}, tensor.PerTensor, hostRead
	}
	// An empty model is a model, but has nothing to plan.
	if len(m.Entries()) == 0 && len(q.Only) == 0 {
		return m.EmptyPlan(), nil
	}
	targets, err := tensor.Spread(sel, gpus)
	if err != nil {
		return nil, err
	}
	return tensor.NewPlan(m, targets, opts)
}

func (q *planRequest) planOne(m *tensor.Model) (*tensor.Plan, error) {
	e, ok := m.Lookup(*q.Tensor)
	if !ok {
		return nil, fmt.Errorf("%s does not contain tensor %q%s", m.Path, *q.Tensor, similar(m, *q.Tensor))
	}
	if len(q.GPUs) > 1 {
		return nil, fmt.Errorf("one tensor goes to one GPU, not to %d", len(q.GPUs))
	}
	gpu := 0
	if len(q.GPUs) > 0 {
		gpu = q.GPUs[0]
	}
	p, err := planSlice(m, e, q.Ranges, gpu)
	if err != nil {
		return nil, err
	}
	p.Tensors[0].Shape, err = squeeze(p.Tensors[0].Shape, q.Squeeze)
	return p, err
}

// similar hints at a tensor whose name ends like the one that is not there, which
// is what is left when a prefix was forgotten or is too many.
func similar(m *tensor.Model, name string) string {
	for _, e := range m.Entries() {
		if name != "" && e.Name != "" && (strings.HasSuffix(e.Name, "."+name) || strings.HasSuffix(name, "."+e.Name)) {
			return fmt.Sprintf(": did you mean %q?", e.Name)
		}
	}
	return ""
}
