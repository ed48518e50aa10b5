package hold

import (
	"io"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

// An Engine is a tensor.Engine for loads whose memory stays: files and
// registrations, which only the transfer needs, can be given back before it.
type Engine struct {
	tensor.Engine
	mapping bool // is worth registering

	mu    sync.Mutex
	files []tensor.Reader
	held  []io.Closer
}

// NewEngine prepares e for one plan.
func NewEngine(e tensor.Engine, p *tensor.Plan) *Engine {
	return &Engine{Engine: e, mapping: worthMapping(p)}
}

// worthMapping weighs registration where no drive gains by it. It maps memory for
// the CPU, which takes some 2 ms for each GiB and as much again to undo; what it
// gains are a few microseconds for each read that is small enough to go that way.
// A model of many GiB in large reads is loaded faster without.
func worthMapping(p *tensor.Plan) bool {
	const (
		small  = 256 << 10
		perGiB = 1000 // small reads that pay for mapping a GiB
	)
	var reads int64
	for i := range p.Reads {
		if p.Reads[i].Len <= small {
			reads += p.Reads[i].Count
		}
	}
	return reads > 0 && reads >= p.Totals().Device>>30*perGiB
}

// Open opens a file until Settle or until the load closes it.
func (e *Engine) Open(path string) (tensor.Reader, error) {
	r, err := e.Engine.Open(path)
	if err != nil {
		return nil, err
	}
	once := &reader{r, closeOnce{c: r}}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.files, e.held = append(e.files, r), append(e.held, once)
	return once, nil
}

// direct reports whether a drive would fill memory of a GPU itself, which it can
// only where the memory is registered.
func (e *Engine) direct(device int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.files, func(r tensor.Reader) bool {
		d, ok := r.(interface{ Direct(device int) bool })
		return ok && d.Direct(device)
	})
}

// Register registers memory until Settle or until the load gives it back, where
// that is worth it. The load has opened its files.
func (e *Engine) Register(span gpu.Span) (io.Closer, error) {
	if !e.mapping && !e.direct(span.Dev) {
		return &closeOnce{c: io.NopCloser(nil)}, nil
	}
	c, err := e.Engine.Register(span)
	if err != nil {
		return nil, err
	}
	once := &closeOnce{c: c}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = append(e.held, once)
	return once, nil
}

// Settle gives back everything but the memory. The transfers must have ended.
func (e *Engine) Settle() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var first error
	for _, c := range e.held {
		if err := c.Close(); err != nil && first == nil {
			first = err
		}
	}
	e.files, e.held = nil, nil
	return first
}

type reader struct {
	tensor.Reader
	once closeOnce
}

func (r *reader) Close() error { return r.once.Close() }

// closeOnce closes once, whoever comes first.
type closeOnce struct {
	once sync.Once
	c    io.Closer
}

func (o *closeOnce) Close() (err error) {
	o.once.Do(func() { err = o.c.Close() })
	return err
}
