package cuda

import (
	"errors"
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
	d.objects.Store(o, nil)
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
	o.d.objects.Delete(o)
	return o.d.check(o.destroy, o.d.call(o.destroy, o.handle))
}

// closeObjects closes the streams, events and modules that are open.
func (d *Device) closeObjects() (err error) {
	d.objects.Range(func(o, _ any) bool {
		err = errors.Join(err, o.(*object).Close())
		return true
	})
	return err
}
