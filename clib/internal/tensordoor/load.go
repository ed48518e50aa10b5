package tensordoor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/hold"
	"github.com/culvert-io/culvert/tensor"
)

type loadRequest struct {
	Plan   handle.ID `json:"plan"`
	Verify bool      `json:"verify"`
	// Addresses are where the tensors of a plan for the host go.
	Addresses []uint64 `json:"addresses"`
}

type loadAnswer struct {
	Memory    handle.ID `json:"memory"`
	Addresses []uint64  `json:"addresses"` // of the plan's tensors
	Soft      bool      `json:"software_machine"`
	Receipt   *receipt  `json:"receipt"`
}

// A receipt says what a load or a save did.
type receipt struct {
	Op       string  `json:"op"`
	Model    string  `json:"model"`
	GPUs     []int   `json:"gpus"`
	Tensors  int     `json:"tensors"`
	Verified int     `json:"verified"`
	Wanted   int64   `json:"wanted_bytes"`
	Bytes    int64   `json:"read_bytes"`
	Prepare  float64 `json:"prepare_seconds"` // opening files, allocating and mapping memory
	First    float64 `json:"first_tensor_seconds"`
	Last     float64 `json:"last_tensor_seconds"`
	Seconds  float64 `json:"seconds"`
	GBps     float64 `json:"gb_per_second"`
	Soft     bool    `json:"software_machine"`

	Files []tensor.FileReport `json:"files"`
}

func (r *receipt) report(rep *tensor.Report) {
	r.Tensors, r.Wanted, r.Bytes, r.Files = rep.Tensors, rep.Wanted, rep.Bytes, rep.Files
	r.First, r.Last, r.GBps = rep.First.Seconds(), rep.Last.Seconds(), rep.Rate()/1e9
}

// loaded tensors are in GPU memory, in the order of the plan.
type loaded struct {
	tensors []tensor.Tensor
	device  func(int) (gpu.Device, error)
}

// load carries a plan for GPUs out.
func (d *Door) load(ctx context.Context, q *loadRequest) (*loadAnswer, error) {
	p, _, err := lookup[*planned](d, q.Plan)
	if err != nil {
		return nil, err
	}
	if p.host {
		return nil, errors.New("the plan is for host memory")
	}
	m, drv, err := d.session()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	engine := hold.NewEngine(tensor.Cufile(drv), p.plan)
	l, err := tensor.NewLoad(p.plan, engine, &tensor.LoadOptions{Verify: q.Verify})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", p.plan.Model, err)
	}
	r := &receipt{Op: "load", Model: p.plan.Model, GPUs: append([]int{}, p.plan.Devices()...), Soft: m.Soft, Files: []tensor.FileReport{}}
	r.Prepare = time.Since(start).Seconds()
	mem := &loaded{device: drv.Device}
	if mem.tensors, err = r.take(ctx, l, p.plan); err == nil {
		err = engine.Settle()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load %s: %w", p.plan.Model, err), l.Close())
	}
	r.Seconds = time.Since(start).Seconds()
	a := &loadAnswer{Addresses: mem.addresses(), Soft: m.Soft, Receipt: r}
	a.Memory, err = d.add(mem, l.Close)
	return a, err
}

// take waits for all tensors and puts them into the order of the plan.
func (r *receipt) take(ctx context.Context, l *tensor.Load, p *tensor.Plan) ([]tensor.Tensor, error) {
	type place struct {
		name string
		gpu  int
	}
	index := make(map[place]int, len(p.Tensors))
	for i := range p.Tensors {
		index[place{p.Tensors[i].Name, p.Buffers[p.Tensors[i].Buffer].Device}] = i
	}
	tensors := make([]tensor.Tensor, len(p.Tensors))
	for t, err := range l.Tensors(ctx) {
		if err != nil {
			return nil, err
		}
		if t.Verified {
			r.Verified++
		}
		tensors[index[place{t.Name, t.Span.Dev}]] = *t
	}
	rep := l.Report()
	r.report(&rep)
	return tensors, nil
}

func (m *loaded) addresses() []uint64 {
	list := make([]uint64, len(m.tensors))
	for i := range m.tensors {
		list[i] = uint64(m.tensors[i].Span.Addr())
	}
	return list
}

type attachRequest struct {
	Path string `json:"path"`
}

type attachAnswer struct {
	loadAnswer
	Model    string            `json:"model"`
	Shared   bool              `json:"shared"`
	Metadata map[string]string `json:"metadata"`
	Tensors  []described       `json:"tensors"`
}

// attach gets the tensors that another process holds.
func (d *Door) attach(ctx context.Context, q *attachRequest) (*attachAnswer, error) {
	held, err := hold.Attach(ctx, q.Path, d)
	if err != nil {
		return nil, err
	}
	mem := &loaded{tensors: held.Tensors, device: d.Device}
	a := &attachAnswer{Model: held.Name, Shared: held.Share == hold.ByDescriptor, Metadata: held.Metadata, Tensors: []described{}}
	a.Addresses = mem.addresses()
	d.mu.Lock()
	a.Soft = d.machine.Soft
	d.mu.Unlock()
	for _, t := range held.Tensors {
		a.Tensors = append(a.Tensors, described{t.Name, t.Dtype, t.Shape, int64(t.Span.Len), t.Span.Dev})
	}
	a.Memory, err = d.add(mem, held.Close)
	return a, err
}
