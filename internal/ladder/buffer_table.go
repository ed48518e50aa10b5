package ladder

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// A table holds what a route has prepared for registered buffers, by base address.
// Transfers read it all the time and registrations are rare, so readers take no
// lock.
type table[T any] struct {
	mu sync.Mutex // serialises changes
	m  atomic.Pointer[map[gpu.Addr]T]
}

func (t *table[T]) get(base gpu.Addr) (v T, ok bool) {
	if m := t.m.Load(); m != nil {
		v, ok = (*m)[base]
	}
	return v, ok
}

func (t *table[T]) len() int {
	if m := t.m.Load(); m != nil {
		return len(*m)
	}
	return 0
}

func (t *table[T]) set(base gpu.Addr, v T) {
	t.change(func(m map[gpu.Addr]T) { m[base] = v })
}

func (t *table[T]) remove(base gpu.Addr) (v T, ok bool) {
	t.change(func(m map[gpu.Addr]T) {
		v, ok = m[base]
		delete(m, base)
	})
	return v, ok
}

// clear empties the table and returns what was in it.
func (t *table[T]) clear() (all []T) {
	t.change(func(m map[gpu.Addr]T) {
		all = slices.Collect(maps.Values(m))
		clear(m)
	})
	return all
}

func (t *table[T]) change(edit func(map[gpu.Addr]T)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := map[gpu.Addr]T{}
	if m := t.m.Load(); m != nil {
		maps.Copy(next, *m)
	}
	edit(next)
	t.m.Store(&next)
}
