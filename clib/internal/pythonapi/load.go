package pythonapi

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

// A loadRequest names a part of an open model, or of one at a path.
type loadRequest struct {
	planRequest
	Path   string `json:"path"`
	Verify bool   `json:"verify"`
}

// A loadAnswer says where tensors are, or will be when the load is finished.
type loadAnswer struct {
	Memory    handle.ID   `json:"memory"`
	Tensors   []described `json:"tensors"`
	Addresses []uint64    `json:"addresses"` // of the tensors
	Soft      bool        `json:"software_machine"`
}

type finishRequest struct {
	Memory handle.ID `json:"memory"`
}

type finishAnswer struct {
	Receipt *receipt `json:"receipt"`
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
	Phases   phases  `json:"phases"`

	Files []tensor.FileReport `json:"files"`
}

// phases are where the time went, in seconds, one after the other.
type phases struct {
	Plan     float64 `json:"plan"`     // reading headers, choosing ranges
	Open     float64 `json:"open"`     // the machine at first, files, manifests
	Allocate float64 `json:"allocate"` // GPU memory
	Move     float64 `json:"move"`     // until the last byte was there
	Verify   float64 `json:"verify"`   // until the last sum was, behind it
	Settle   float64 `json:"settle"`   // closing files
}

func (r *receipt) report(rep *tensor.Report) {
	r.Tensors, r.Wanted, r.Bytes, r.Files = rep.Tensors, rep.Wanted, rep.Bytes, rep.Files
	r.First, r.Last, r.GBps = rep.First.Seconds(), rep.Last.Seconds(), rep.Rate()/1e9
	r.Phases.Open, r.Phases.Allocate = rep.Open.Seconds(), rep.Alloc.Seconds()
	r.Phases.Move, r.Phases.Verify = rep.Moved.Seconds(), max(rep.Last-rep.Moved, 0).Seconds()
	r.Phases.Settle = rep.Release.Seconds()
}

// loaded tensors are in GPU memory, or on their way there.
type loaded struct {
	tensors []tensor.Tensor
	device  func(int) (gpu.Device, error)

	cancel  context.CancelFunc
	done    chan struct{} // closed when the bytes are there, or will not come
	err     error
	receipt *receipt
}

// load plans and begins to load to GPUs. The tensors have their places when it
// answers, so that the caller can prepare for them; finish waits for the bytes.
func (d *API) load(_ context.Context, q *loadRequest) (*loadAnswer, error) {
	start := time.Now()
	p, err := d.planLoad(q)
	if err != nil {
		return nil, err
	}
	r := &receipt{Op: "load", Model: p.Model, GPUs: append([]int{}, p.Devices()...), Files: []tensor.FileReport{}}
	r.Phases.Plan = time.Since(start).Seconds()
	m, drv, err := d.session()
	if err != nil {
		return nil, err
	}
	r.Soft = m.Soft
	l, err := tensor.NewLoad(p, drv, &tensor.LoadOptions{Verify: q.Verify, Sums: &d.sums})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", p.Model, err)
	}
	mem := &loaded{tensors: make([]tensor.Tensor, len(p.Tensors)), device: drv.Device, done: make(chan struct{}), receipt: r}
	for i := range mem.tensors {
		mem.tensors[i] = l.Tensor(i)
	}
	r.Prepare = time.Since(start).Seconds()
	var ctx context.Context
	ctx, mem.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(mem.done)
		mem.err = r.run(ctx, l)
		r.Seconds = time.Since(start).Seconds()
	}()
	a := &loadAnswer{Tensors: describeAll(mem.tensors), Addresses: mem.addresses(), Soft: m.Soft}
	a.Memory, err = d.add(mem, func() error {
		mem.cancel()
		<-mem.done
		return l.Close()
	})
	return a, err
}

// planLoad plans for GPUs.
func (d *API) planLoad(q *loadRequest) (*tensor.Plan, error) {
	if len(q.GPUs) == 0 {
		return nil, errors.New("a load without GPUs")
	}
	if q.Path == "" {
		p, err := d.planned(&q.planRequest)
		if err != nil {
			return nil, err
		}
		return p.plan, nil
	}
	m, err := tensor.Open(q.Path)
	if err != nil {
		return nil, err
	}
	p, err := q.plan(m)
	if err != nil {
		return nil, err
	}
	return p.plan, nil
}

// run takes all tensors.
func (r *receipt) run(ctx context.Context, l *tensor.Load) (err error) {
	defer guard(&err)
	for t, err := range l.Tensors(ctx) {
		if err != nil {
			return fmt.Errorf("load %s: %w", r.Model, err)
		}
		if t.Verified {
			r.Verified++
		}
	}
	rep := l.Report()
	r.report(&rep)
	return nil
}

// finish waits until a load has ended.
func (d *API) finish(ctx context.Context, q *finishRequest) (*finishAnswer, error) {
	m, _, err := lookup[*loaded](d, q.Memory)
	if err != nil {
		return nil, err
	}
	if m.receipt == nil {
		return nil, errors.New("the memory was not loaded, but attached")
	}
	if err := m.wait(ctx); err != nil {
		return nil, err
	}
	return &finishAnswer{m.receipt}, nil
}

// wait is over when the bytes are there. A wait that is cancelled ends the load.
func (m *loaded) wait(ctx context.Context) error {
	if m.done == nil {
		return nil // attached
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		m.cancel()
		<-m.done
	}
	return m.err
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

// An attachAnswer leaves the tensors for later: what is asked for first is the
// memory.
type attachAnswer struct {
	Memory   handle.ID         `json:"memory"`
	Soft     bool              `json:"software_machine"`
	Model    string            `json:"model"`
	Shared   bool              `json:"shared"`
	Metadata map[string]string `json:"metadata"`
	Receipt  *attachReceipt    `json:"receipt"`
}

type attachReceipt struct {
	Op      string  `json:"op"`
	Model   string  `json:"model"`
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Soft    bool    `json:"software_machine"`
	// Phases are where the time went; the list is read while memory is mapped.
	Phases struct {
		Connect float64 `json:"connect"`
		Answer  float64 `json:"answer"`
		Map     float64 `json:"map"`
		List    float64 `json:"list"`
	} `json:"phases"`
}

// attach gets the tensors that another process holds.
func (d *API) attach(ctx context.Context, q *attachRequest) (*attachAnswer, error) {
	start := time.Now()
	held, err := hold.Attach(ctx, q.Path, d)
	if err != nil {
		return nil, err
	}
	r := &attachReceipt{Op: "attach", Model: held.Name, Tensors: len(held.Tensors), Seconds: time.Since(start).Seconds()}
	r.Phases.Connect, r.Phases.Answer = held.Took.Connect.Seconds(), held.Took.Answer.Seconds()
	r.Phases.Map, r.Phases.List = held.Took.Map.Seconds(), held.Took.List.Seconds()
	for i := range held.Tensors {
		r.Bytes += int64(held.Tensors[i].Span.Len)
	}
	d.mu.Lock()
	r.Soft = d.machine.Soft
	d.mu.Unlock()
	a := &attachAnswer{Soft: r.Soft, Model: held.Name, Shared: held.Share == hold.ByDescriptor, Metadata: held.Metadata, Receipt: r}
	a.Memory, err = d.add(&loaded{tensors: held.Tensors, device: d.Device}, held.Close)
	return a, err
}

type tensorsRequest struct {
	Memory handle.ID `json:"memory"`
}

type tensorsAnswer struct {
	Tensors   []described `json:"tensors"`
	Addresses []uint64    `json:"addresses"`
}

// tensors lists what lies in memory.
func (d *API) tensors(_ context.Context, q *tensorsRequest) (*tensorsAnswer, error) {
	m, _, err := lookup[*loaded](d, q.Memory)
	if err != nil {
		return nil, err
	}
	return &tensorsAnswer{describeAll(m.tensors), m.addresses()}, nil
}

func describeAll(tensors []tensor.Tensor) []described {
	list := make([]described, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		list[i] = described{t.Name, t.Dtype, t.Shape, int64(t.Span.Len), t.Span.Dev}
	}
	return list
}
