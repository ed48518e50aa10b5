package hold

import (
	"io"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

// An Engine is a tensor.Engine for loads whose memory stays: files and
// registrations, which only the transfer needs, can be given back before it.
type Engine struct {
	tensor.Engine
	register bool

	mu   sync.Mutex
	held []io.Closer
}

// NewEngine prepares e for one plan.
func NewEngine(e tensor.Engine, p *tensor.Plan) *Engine {
	return &Engine{Engine: e, register: worthMapping(p)}
}

// worthMapping weighs registration. It maps memory for the CPU, which takes some
// 2 ms for each GiB and as much again to undo; what it gains are a few
// microseconds for each read that is small enough to go that way. A model of
// many GiB in large reads is loaded faster without.
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
	e.keep(once)
	return once, nil
}

// Register registers memory until Settle or until the load gives it back, where
// that is worth it.
func (e *Engine) Register(span gpu.Span) (io.Closer, error) {
	if !e.register {
		return &closeOnce{c: io.NopCloser(nil)}, nil
	}
	c, err := e.Engine.Register(span)
	if err != nil {
		return nil, err
	}
	once := &closeOnce{c: c}
	e.keep(once)
	return once, nil
}

func (e *Engine) keep(c io.Closer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = append(e.held, c)
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
	e.held = nil
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
