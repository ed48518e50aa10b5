package cuda

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// An object is a handle of the driver that a Device owns: a stream, an event
// or a module.
type object struct {
	d       *Device
	handle  uintptr
	closed  atomic.Bool
	destroy *symbol
}

// adopt makes o the object of a new handle, which Device.Close closes.
func (d *Device) adopt(o *object, handle uintptr, destroy *symbol) {
	o.d, o.handle, o.destroy = d, handle, destroy
	d.objects.add(o)
}

// call calls s with the context current. The handle of a closed object must not
// reach the driver, which does not check it.
func (o *object) call(s *symbol, args ...uintptr) gpu.Code {
	if o.closed.Load() {
		return o.d.unusable()
	}
	return o.d.call(s, args...)
}

// done interprets the result of a query: finished, or the error that ended it.
func (o *object) done(query *symbol) (bool, error) {
	c := o.call(query, o.handle)
	if c == gpu.ErrNotReady {
		return false, nil
	}
	return true, o.d.check(query, c)
}

func (o *object) synchronize(s *symbol) error { return o.d.check(s, o.call(s, o.handle)) }

// Close destroys the object. Work of a closed stream still runs; kernels of a
// closed module must not.
func (o *object) Close() error {
	if o.closed.Swap(true) {
		return o.d.fail(o.destroy, o.d.unusable(), "already closed")
	}
	o.d.objects.remove(o)
	return o.d.check(o.destroy, o.d.call(o.destroy, o.handle))
}

// objects are the open objects of a Device.
type objects struct {
	mu   sync.Mutex
	open map[*object]struct{}
}

func (p *objects) add(o *object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = make(map[*object]struct{})
	}
	p.open[o] = struct{}{}
}

func (p *objects) remove(o *object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, o)
}

// close closes all of them.
func (p *objects) close() error {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	var errs []error
	for _, o := range open {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}
