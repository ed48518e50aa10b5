package tensor

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/phase"
	"github.com/culvert-io/culvert/route"
)

// LoadOptions refine a load. The zero value is the default.
type LoadOptions struct {
	// Kind is the memory to allocate: gpu.KindDevice, which is the default,
	// gpu.KindVirtual for memory to share with other processes, or gpu.KindHost for
	// pinned host memory.
	Kind gpu.Kind
	// Window streams: each device has this many bytes, and a tensor's memory is
	// reused as soon as the loop asks for the next one. It needs a plan with one
	// allocation per tensor. 0 keeps all tensors.
	Window uint64
	// Cache says how the files use the page cache. The default keeps them there as
	// long as all that is loaded fits.
	Cache route.CacheMode
	// Require is the worst route that may be used, for every byte; None allows all. If it
	// cannot be met, NewLoad or the load fails with a *route.RequireError.
	Require route.ID
	// Verify compares each whole tensor with the manifest beside its file before it
	// is yielded, while others are in flight. Slices of tensors have no checksum.
	Verify bool
	// Sums keeps kernels for Verify from one load to the next. nil creates them for
	// this load.
	Sums *Sums

	depth int        // large batches in flight per device; 0 is the default
	small int        // workers per device, for batches of small segments
	batch int64      // size of batches; 0 follows what is left
	host  []gpu.Addr // addresses of the tensors in host memory
}

// A route splits large batches itself, so two keep it busy. Small segments are
// single reads on single CPUs.
const (
	defaultDepth = 2
	smallDepth   = 16
)

// A Tensor has been loaded.
type Tensor struct {
	Name     string   `json:"name"`
	Dtype    Dtype    `json:"dtype"`
	Shape    []int64  `json:"shape"`
	Span     gpu.Span `json:"-"`
	Verified bool     `json:"verified"` // against the manifest
}

// A Load carries out a plan. It owns the device memory until Close.
type Load struct {
	plan   *Plan
	opts   LoadOptions
	engine engine

	files   []reader // nil where the plan reads nothing
	buffers []gpu.Span
	devices map[int]*loadDevice
	sums    []map[string]Sum // by file, for Verify
	own     Sums             // if the caller gave none
	copies  map[int][]Copy   // by the tensor that they copy
	copiers map[int]*copier  // by device

	start    time.Time // of the transfer
	mu       sync.Mutex
	left     []int // reads or copies that each tensor still waits for
	uncopied []int // copies that each tensor must still be read for
	report   Report
	started  bool
}

// loadDevice is what a load has on one GPU.
type loadDevice struct {
	dev     gpu.Device
	owned   []gpu.Addr
	spans   []gpu.Span // what is owned, to register
	regs    []io.Closer
	window  *window
	checker *checker // if the load verifies
}

// NewLoad opens the files of a plan and allocates the device memory. It registers
// the memory with the driver where that makes the load faster. opts may be nil.
func NewLoad(p *Plan, drv *cufile.Driver, opts *LoadOptions) (*Load, error) {
	e := cufileEngine{drv: drv}
	if opts != nil && opts.Require != route.None {
		e.require = func(f *cufile.File) error { return requireOn(f, p.Devices(), opts.Require) }
	}
	return newLoad(p, e, opts)
}

func newLoad(p *Plan, e engine, opts *LoadOptions) (*Load, error) {
	l := &Load{plan: p, engine: e, devices: map[int]*loadDevice{}}
	if opts != nil {
		l.opts = *opts
	}
	l.opts.small = l.opts.depth // a given depth is for small reads, too
	if l.opts.depth <= 0 {
		l.opts.depth, l.opts.small = defaultDepth, smallDepth
	}
	if l.opts.Sums == nil {
		l.opts.Sums = &l.own
	}
	if l.opts.Kind == gpu.KindNone {
		l.opts.Kind = gpu.KindDevice
	}
	if err := l.prepare(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Load) prepare() error {
	l.report = newReport(l.plan)
	l.left = make([]int, len(l.plan.Tensors))
	for i := range l.plan.Reads {
		for t := l.plan.Reads[i].First; t <= l.plan.Reads[i].Last; t++ {
			l.left[t]++
		}
	}
	if err := l.prepareCopies(); err != nil {
		return err
	}
	return l.prepareTogether()
}

func (l *Load) openFiles() error {
	used := make([]bool, len(l.plan.Files))
	for i := range l.plan.Tensors {
		used[l.plan.Tensors[i].File] = true
	}
	l.files = make([]reader, len(l.plan.Files))
	l.sums = make([]map[string]Sum, len(l.plan.Files))
	for i, path := range l.plan.Files {
		if !used[i] {
			continue
		}
		f, err := l.engine.open(path)
		if err != nil {
			return err
		}
		l.files[i] = f
		if err := f.setCache(l.opts.Cache, l.plan.Totals().Read); err != nil {
			return err
		}
		if err := l.plan.check(i); err != nil {
			return err
		}
		if l.opts.Verify {
			if l.sums[i], err = l.plan.sums(i); err != nil {
				return err
			}
		}
	}
	// Tensors that a manifest lacks are an error before anything is read.
	for i := range l.plan.Tensors {
		p := &l.plan.Tensors[i]
		if _, ok := l.sums[p.File][p.Name]; !ok && l.verifies(i) {
			return &ChecksumError{File: l.plan.Files[p.File], Tensor: p.Name, Detail: "the manifest does not list it"}
		}
	}
	return nil
}

// Tensors moves the bytes and yields each tensor when it is complete. It ends with
// the last tensor or the first error. Leaving the loop or cancelling ctx stops the
// reads. After the loop nothing writes to the memory, the files are closed and the
// memory is no longer registered. Tensors may be called only once.
func (l *Load) Tensors(ctx context.Context) iter.Seq2[*Tensor, error] {
	return func(yield func(*Tensor, error) bool) {
		if l.started {
			yield(nil, errors.New("Tensors may be called only once per Load"))
			return
		}
		l.started = true
		ctx, cancel := context.WithCancel(ctx)
		l.start = time.Now()
		moved := phase.Begin("move")
		// Room for all, so that no worker waits for the loop.
		ready := make(chan int, len(l.plan.Tensors))
		done := make(chan error, 1)
		l.transfer(ctx, ready, done)
		// The loop may also end by a panic in its body.
		defer func() {
			cancel()
			for range ready {
			}
		}()
		stopped := false // by the caller's loop
		for i := range ready {
			if !stopped && !l.yield(i, yield) {
				stopped = true
				cancel()
			}
		}
		err := <-done
		moved()
		begin := time.Now()
		if rerr := l.release(); err == nil {
			err = rerr
		}
		l.mu.Lock()
		l.report.Release = time.Since(begin)
		l.mu.Unlock()
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// transfer starts to move everything. It closes ready when done has the error.
func (l *Load) transfer(ctx context.Context, ready chan<- int, done chan<- error) {
	if l.single() {
		done <- l.readSingle(ctx, ready)
		close(ready)
		return
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, device := range l.plan.Devices() {
		l.run(gctx, g, device, ready)
	}
	go func() {
		done <- g.Wait()
		close(ready)
	}()
}

// Tensor returns tensor i of the plan with its address. Its bytes are there when
// Tensors has yielded it. A load with a window has no addresses before that.
func (l *Load) Tensor(i int) Tensor {
	p := &l.plan.Tensors[i]
	l.mu.Lock()
	defer l.mu.Unlock()
	return Tensor{Name: p.Name, Dtype: p.Dtype, Shape: p.Shape, Span: l.buffers[p.Buffer].Slice(p.Off, p.Len)}
}

// yield yields a tensor, and frees its memory in a window.
func (l *Load) yield(i int, yield func(*Tensor, error) bool) bool {
	t := l.Tensor(i)
	t.Verified = l.opts.Verify && l.plan.Tensors[i].Whole == nil
	l.mu.Lock()
	buffer := l.buffers[l.plan.Tensors[i].Buffer]
	l.report.yielded(&t, time.Since(l.start))
	l.mu.Unlock()
	ok := yield(&t, nil)
	if w := l.devices[buffer.Dev].window; w != nil {
		w.free(buffer)
	}
	return ok
}

// Report returns what the load has done so far.
func (l *Load) Report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report.clone()
}

// Progress returns how many bytes have reached GPUs so far.
func (l *Load) Progress() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report.Bytes + l.report.Copied
}

// release gives back what only the transfer needs: files and registrations.
func (l *Load) release() error {
	var errs []error
	for i, f := range l.files {
		if f != nil {
			errs = append(errs, f.Close())
			l.files[i] = nil
		}
	}
	for _, d := range l.devices {
		for _, r := range d.regs {
			errs = append(errs, r.Close())
		}
		d.regs = nil
	}
	return errors.Join(errs...)
}

// Close closes the files and frees the device memory. The loop over Tensors must
// have ended.
func (l *Load) Close() error {
	errs := []error{l.release()}
	for _, d := range l.devices {
		for _, a := range d.owned {
			errs = append(errs, d.dev.Free(a))
		}
		*d = loadDevice{}
	}
	return errors.Join(append(errs, l.own.Close())...)
}
