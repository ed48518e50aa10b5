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

	mu   sync.Mutex
	held []io.Closer
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

// Register registers memory until Settle or until the load gives it back.
func (e *Engine) Register(span gpu.Span) (io.Closer, error) {
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
