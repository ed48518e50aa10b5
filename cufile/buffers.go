package cufile

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// buffers is the table of registered buffers by base. Transfers read it all the
// time and registrations are rare, so readers take a snapshot without a lock.
type buffers struct {
	mu sync.Mutex // serialises writers
	m  atomic.Pointer[map[gpu.Addr]*Buffer]
}

func (t *buffers) find(base gpu.Addr) *Buffer {
	if m := t.m.Load(); m != nil {
		return (*m)[base]
	}
	return nil
}

func (t *buffers) add(b *Buffer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.find(b.span.Base) != nil {
		return false
	}
	t.swap(func(m map[gpu.Addr]*Buffer) { m[b.span.Base] = b })
	return true
}

func (t *buffers) remove(b *Buffer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.swap(func(m map[gpu.Addr]*Buffer) { delete(m, b.span.Base) })
}

func (t *buffers) all() []*Buffer {
	var list []*Buffer
	if m := t.m.Load(); m != nil {
		for _, b := range *m {
			list = append(list, b)
		}
	}
	return list
}

func (t *buffers) swap(edit func(map[gpu.Addr]*Buffer)) {
	next := map[gpu.Addr]*Buffer{}
	if m := t.m.Load(); m != nil {
		maps.Copy(next, *m)
	}
	edit(next)
	t.m.Store(&next)
}
