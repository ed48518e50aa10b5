package pythonapi

import (
	"fmt"
	"sync/atomic"

	"github.com/culvert-io/culvert/clib/internal/handle"
)

// An object is what a handle refers to. It counts references: loaded memory belongs
// to every tensor in it.
type object struct {
	refs  atomic.Int64
	value any
	end   func() error
}

// add returns a handle with one reference. If it fails, v has ended.
func (a *API) add(v any, end func() error) (handle.ID, error) {
	o := &object{value: v, end: end}
	o.refs.Store(1)
	id, ok := a.objects.Add(o)
	if !ok {
		return 0, fmt.Errorf("too many objects are open: %w", end())
	}
	return id, nil
}

// lookup returns the object of a handle.
func lookup[T any](a *API, id handle.ID) (v T, o *object, err error) {
	o, ok := a.objects.Get(id)
	if ok {
		v, ok = o.value.(T)
	}
	if !ok {
		return v, nil, fmt.Errorf("handle %#x is not one of an open %T", uint64(id), v)
	}
	return v, o, nil
}

// Release drops a reference, and with the last one the object. Destructors call it,
// so it returns no error.
func (a *API) Release(id handle.ID) {
	o, ok := a.objects.Get(id)
	if !ok || o.refs.Add(-1) > 0 {
		return
	}
	if _, ok := a.objects.Remove(id); ok {
		_ = o.end()
	}
}
