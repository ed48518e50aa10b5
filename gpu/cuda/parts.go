package cuda

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
)

// parts are a Device's open streams, events and modules.
type parts struct {
	mu   sync.Mutex
	open map[io.Closer]struct{}
}

func (p *parts) add(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = make(map[io.Closer]struct{})
	}
	p.open[c] = struct{}{}
}

func (p *parts) remove(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// close closes all of them.
func (p *parts) close() error {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	var errs []error
	for _, c := range open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
