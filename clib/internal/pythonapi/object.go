package pythonapi

import (
	"fmt"
	"sync/atomic"

	"github.com/culvert-io/culvert/clib/internal/handle"
)

// An object is what a handle stands for. It is counted: loaded memory belongs to
// every tensor that lies in it.
type object struct {
	refs  atomic.Int64
	value any
	end   func() error
}

// add makes a handle with one reference. If it fails, v has ended.
func (d *API) add(v any, end func() error) (handle.ID, error) {
	o := &object{value: v, end: end}
	o.refs.Store(1)
	id, ok := d.objects.Add(o)
	if !ok {
		return 0, fmt.Errorf("too many objects are open at a time: %w", end())
	}
	return id, nil
}

// lookup finds the object of a handle.
func lookup[T any](d *API, id handle.ID) (v T, o *object, err error) {
	o, ok := d.objects.Get(id)
	if ok {
		v, ok = o.value.(T)
	}
	if !ok {
		return v, nil, fmt.Errorf("handle %#x is not one of an open %T", uint64(id), v)
	}
	return v, o, nil
}

// Release drops a reference, and the object with the last one. It is called from
// destructors, which have nobody to report to.
func (d *API) Release(id handle.ID) {
	o, ok := d.objects.Get(id)
	if !ok || o.refs.Add(-1) > 0 {
		return
	}
	if _, ok := d.objects.Remove(id); ok {
		_ = o.end()
	}
}
