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

type loadRequest struct {
	planRequest
	Verify bool `json:"verify"`
}

// A loadAnswer says where tensors are, or will be when the load is finished.
type loadAnswer struct {
	tensorsAnswer
	Memory handle.ID `json:"memory"`
	Soft   bool      `json:"software_machine"`
}

type memoryRequest struct {
	Memory handle.ID `json:"memory"`
}

type receiptAnswer struct {
	Receipt any `json:"receipt"`
}

// A receipt says what a load did.
type receipt struct {
	Op       string  `json:"op"`
	Model    string  `json:"model"`
	GPUs     []int   `json:"gpus"`
	Tensors  int     `json:"tensors"`
	Verified int     `json:"verified"`
	Wanted   int64   `json:"wanted_bytes"`
	Bytes    int64   `json:"read_bytes"`
	Copied   int64   `json:"copied_bytes"`    // from one GPU to another
	Prepare  float64 `json:"prepare_seconds"` // opening files, allocating and mapping memory
	First    float64 `json:"first_tensor_seconds"`
	Last     float64 `json:"last_tensor_seconds"`
	Seconds  float64 `json:"seconds"`
	GBps     float64 `json:"gb_per_second"`
	Soft     bool    `json:"software_machine"`
	Phases   phases  `json:"phases"`

	Files []tensor.FileReport `json:"files"`
}

// phases are the durations of the steps of a load, in seconds, one after the other.
type phases struct {
	Plan     float64 `json:"plan"`     // reading headers, choosing ranges
	Open     float64 `json:"open"`     // the machine at first, files, manifests
	Allocate float64 `json:"allocate"` // GPU memory
	Move     float64 `json:"move"`     // until the last byte was there
	Verify   float64 `json:"verify"`   // from then until the last sum was there
	Settle   float64 `json:"settle"`   // closing files
}

// loaded tensors are in GPU memory, or in flight to it.
type loaded struct {
	tensors []tensor.Tensor
	device  func(int) (gpu.Device, error)

	arrivals *arrivals // nil if they were attached
	progress func() int64
	total    int64

	cancel  context.CancelFunc
	done    chan struct{} // closed when the load has ended
	err     error
	receipt *receipt
}

// load plans, and starts to load to GPUs. The answer has the tensors' addresses, so
// that the caller can prepare for them; finish waits for the bytes.
func (a *API) load(ctx context.Context, q *loadRequest) (*loadAnswer, error) {
	start := time.Now()
	cache, err := q.cacheMode()
	if err != nil {
		return nil, err
	}
	opened := a.openBeside()
	p, err := a.planLoad(ctx, q)
	if err != nil {
		return nil, err
	}
	r := &receipt{Op: "load", Model: p.Model, GPUs: append([]int{}, p.Devices()...), Files: []tensor.FileReport{}}
	r.Phases.Plan = time.Since(start).Seconds()
	m, drv, err := opened()
	if err != nil {
		return nil, err
	}
	r.Soft = m.Soft
	l, err := tensor.NewLoad(p, drv, &tensor.LoadOptions{Verify: q.Verify, Cache: cache, Sums: &a.sums})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", p.Model, err)
	}
	mem := &loaded{tensors: make([]tensor.Tensor, len(p.Tensors)), device: drv.Device, done: make(chan struct{}), receipt: r}
	for i := range mem.tensors {
		mem.tensors[i] = l.Tensor(i)
	}
	mem.arrivals, mem.progress, mem.total = newArrivals(mem.tensors), l.Progress, p.Totals().Wanted
	r.Prepare = time.Since(start).Seconds()
	moving, cancel := context.WithCancel(context.Background())
	mem.cancel = cancel
	go func() {
		defer close(mem.done)
		mem.err = r.run(moving, l, mem.arrivals.add)
		r.Seconds = time.Since(start).Seconds()
	}()
	ans := &loadAnswer{tensorsAnswer: mem.describe(), Soft: m.Soft}
	ans.Memory, err = a.add(mem, func() error {
		mem.cancel()
		<-mem.done
		return l.Close()
	})
	return ans, err
}

// planLoad plans for GPUs.
func (a *API) planLoad(ctx context.Context, q *loadRequest) (*tensor.Plan, error) {
	if len(q.GPUs) == 0 {
		return nil, errors.New("a load needs a GPU")
	}
	return a.planFor(ctx, &q.planRequest)
}

// run moves the bytes. It calls arrived with each tensor that is complete.
func (r *receipt) run(ctx context.Context, l *tensor.Load, arrived func(*tensor.Tensor)) (err error) {
	defer guard(&err)
	for t, err := range l.Tensors(ctx) {
		if err != nil {
			return fmt.Errorf("load %s: %w", r.Model, err)
		}
		arrived(t)
	}
	rep := l.Report()
	r.Tensors, r.Verified, r.Wanted, r.Bytes, r.Copied, r.Files = rep.Tensors, rep.Verified, rep.Wanted, rep.Bytes, rep.Copied, rep.Files
	r.First, r.Last, r.GBps = rep.First.Seconds(), rep.Last.Seconds(), rep.Rate()/1e9
	r.Phases.Open, r.Phases.Allocate = rep.Open.Seconds(), rep.Alloc.Seconds()
	r.Phases.Move, r.Phases.Verify = rep.Moved.Seconds(), max(rep.Last-rep.Moved, 0).Seconds()
	r.Phases.Settle = rep.Release.Seconds()
	return nil
}

// finish waits until a load has ended.
func (a *API) finish(ctx context.Context, q *memoryRequest) (*receiptAnswer, error) {
	m, _, err := lookup[*loaded](a, q.Memory)
	if err != nil {
		return nil, err
	}
	if m.receipt == nil {
		return nil, errors.New("the memory was not loaded, but attached")
	}
	if err := m.wait(ctx); err != nil {
		return nil, err
	}
	return &receiptAnswer{m.receipt}, nil
}

// wait waits for the bytes. Cancelling it ends the load.
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

type fillRequest struct {
	Plan      handle.ID  `json:"plan"`
	Addresses []gpu.Addr `json:"addresses"` // of its tensors, in host memory
	Verify    bool       `json:"verify"`
}

// fill carries out a plan for host memory of the caller.
func (a *API) fill(ctx context.Context, q *fillRequest) (*receiptAnswer, error) {
	p, _, err := lookup[*tensor.Plan](a, q.Plan)
	if err != nil {
		return nil, err
	}
	return fill(ctx, p, q.Addresses, q.Verify)
}

// A readRequest is for one tensor of an open model, or a slice of one, and names the
// memory for it.
type readRequest struct {
	planRequest
	Address gpu.Addr `json:"address"`
	Bytes   uint64   `json:"bytes"`
}

// read is plan and fill in one call: single tensors are many and small.
func (a *API) read(ctx context.Context, q *readRequest) (*receiptAnswer, error) {
	if q.Tensor == nil || len(q.GPUs) > 0 {
		return nil, errors.New("a read is of one tensor, into host memory")
	}
	p, err := a.planFor(ctx, &q.planRequest)
	if err != nil {
		return nil, err
	}
	if n := p.Tensors[0].Len; n != q.Bytes {
		return nil, fmt.Errorf("tensor %q has %d bytes, its memory %d", *q.Tensor, n, q.Bytes)
	}
	return fill(ctx, p, []gpu.Addr{q.Address}, false)
}

func fill(ctx context.Context, p *tensor.Plan, addresses []gpu.Addr, verify bool) (*receiptAnswer, error) {
	start := time.Now()
	l, err := tensor.NewHostLoad(p, addresses, &tensor.LoadOptions{Verify: verify})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", p.Model, err)
	}
	r := &receipt{Op: "load", Model: p.Model, GPUs: []int{}}
	err = errors.Join(r.run(ctx, l, func(*tensor.Tensor) {}), l.Close())
	r.Seconds = time.Since(start).Seconds()
	return &receiptAnswer{r}, err
}

type attachRequest struct {
	Path string `json:"path"`
	User string `json:"user"` // whose server it may be; empty for this user
	GPUs []int  `json:"gpus"` // whose memory is wanted; none: all
}

// An attachAnswer leaves the tensors for later: callers need the memory first.
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
	// Phases are durations in seconds; the list is read while memory is mapped.
	Phases struct {
		Connect float64 `json:"connect"`
		Answer  float64 `json:"answer"`
		Map     float64 `json:"map"`
		List    float64 `json:"list"`
	} `json:"phases"`
}

// attach maps the tensors that another process serves.
func (a *API) attach(ctx context.Context, q *attachRequest) (*attachAnswer, error) {
	start := time.Now()
	uid, err := hold.UserID(q.User)
	if err != nil {
		return nil, err
	}
	m, err := hold.AttachFrom(ctx, q.Path, uid, a, q.GPUs...)
	if err != nil {
		return nil, err
	}
	r := &attachReceipt{Op: "attach", Model: m.Name, Tensors: len(m.Tensors), Seconds: time.Since(start).Seconds()}
	r.Phases.Connect, r.Phases.Answer = m.Took.Connect.Seconds(), m.Took.Answer.Seconds()
	r.Phases.Map, r.Phases.List = m.Took.Map.Seconds(), m.Took.List.Seconds()
	for i := range m.Tensors {
		r.Bytes += int64(m.Tensors[i].Span.Len)
	}
	a.mu.Lock()
	r.Soft = a.machine.Soft
	a.mu.Unlock()
	ans := &attachAnswer{Soft: r.Soft, Model: m.Name, Shared: m.Share == hold.ByDescriptor, Metadata: m.Metadata, Receipt: r}
	ans.Memory, err = a.add(&loaded{tensors: m.Tensors, device: a.Device}, m.Close)
	return ans, err
}

type tensorsAnswer struct {
	Tensors   []described `json:"tensors"`
	Addresses []gpu.Addr  `json:"addresses"`
}

// tensors lists the tensors in memory.
func (a *API) tensors(_ context.Context, q *memoryRequest) (tensorsAnswer, error) {
	m, _, err := lookup[*loaded](a, q.Memory)
	if err != nil {
		return tensorsAnswer{}, err
	}
	return m.describe(), nil
}

func (m *loaded) describe() tensorsAnswer {
	ans := tensorsAnswer{make([]described, len(m.tensors)), make([]gpu.Addr, len(m.tensors))}
	for i := range m.tensors {
		t := &m.tensors[i]
		ans.Tensors[i] = described{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape, Bytes: int64(t.Span.Len), GPU: t.Span.Dev}
		ans.Addresses[i] = t.Span.Addr()
	}
	return ans
}
