package cufile

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// A bufferTable holds the registered buffers by base address. Transfers read it all
// the time and registrations are rare, so readers take no lock.
type bufferTable struct {
	mu sync.Mutex // serialises writers
	m  atomic.Pointer[map[gpu.Addr]*Buffer]
}

func (t *bufferTable) find(base gpu.Addr) *Buffer {
	if m := t.m.Load(); m != nil {
		return (*m)[base]
	}
	return nil
}

// enter finds the buffer of a span by its base and keeps it registered until its gate
// is left; nil if there is none.
func (t *bufferTable) enter(s gpu.Span, shard uint32) *Buffer {
	b := t.find(s.Base)
	if b == nil || b.reserved != 0 && b.unmapped(s) || !b.io.Enter(shard) {
		return nil
	}
	return b
}

func (t *bufferTable) add(b *Buffer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.find(b.span.Base) != nil {
		return false
	}
	t.swap(func(m map[gpu.Addr]*Buffer) { m[b.span.Base] = b })
	return true
}

func (t *bufferTable) remove(b *Buffer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.swap(func(m map[gpu.Addr]*Buffer) { delete(m, b.span.Base) })
}

func (t *bufferTable) all() []*Buffer {
	var list []*Buffer
	if m := t.m.Load(); m != nil {
		for _, b := range *m {
			list = append(list, b)
		}
	}
	return list
}

func (t *bufferTable) swap(edit func(map[gpu.Addr]*Buffer)) {
	next := map[gpu.Addr]*Buffer{}
	if m := t.m.Load(); m != nil {
		maps.Copy(next, *m)
	}
	edit(next)
	t.m.Store(&next)
}
