package cufile

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
)

// A bufferTable holds the registered buffers by base address. Transfers read it all
// the time and registrations are rare, so readers take no lock.
type bufferTable struct {
	mu sync.Mutex // serialises writers
	m  atomic.Pointer[bufferIndex]
}

// A bufferIndex does not change.
type bufferIndex struct {
	at     map[gpu.Addr]*Buffer // by base
	sorted []*Buffer            // by base
}

func (t *bufferTable) find(base gpu.Addr) *Buffer {
	if m := t.m.Load(); m != nil {
		return m.at[base]
	}
	return nil
}

// around finds the buffer on a GPU that contains a span whose base is not a buffer's:
// programs that register one large buffer pass addresses inside it. It is nil as well if
// the memory was freed since, because the address may be that of other memory now.
func (t *bufferTable) around(s gpu.Span) *Buffer {
	m := t.m.Load()
	if m == nil || s.Len == 0 || s.Off > math.MaxUint64-uint64(s.Base) {
		return nil
	}
	i, _ := slices.BinarySearchFunc(m.sorted, s.Addr(), func(b *Buffer, a gpu.Addr) int {
		if b.span.Base <= a {
			return -1
		}
		return 1
	})
	if i == 0 {
		return nil
	}
	b := m.sorted[i-1]
	skip := uint64(s.Addr() - b.span.Base)
	if !b.kind.OnDevice() || skip >= b.span.Len || s.Len > b.span.Len-skip || b.CheckAllocated(s) != nil {
		return nil
	}
	return b
}

// enter finds the buffer of a span by its base, or around it, and keeps it registered
// until its gate is left; nil if there is none. The span is then relative to the buffer.
func (t *bufferTable) enter(s *gpu.Span, shard uint32) *Buffer {
	b := t.find(s.Base)
	if b == nil {
		b = t.around(*s)
	}
	if b == nil || b.reserved != 0 && b.unmapped(*s) || !b.io.Enter(shard) {
		return nil
	}
	s.Base, s.Off = b.span.Base, uint64(s.Addr()-b.span.Base)
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
		list = append(list, m.sorted...)
	}
	return list
}

func (t *bufferTable) swap(edit func(map[gpu.Addr]*Buffer)) {
	next := &bufferIndex{at: map[gpu.Addr]*Buffer{}}
	if m := t.m.Load(); m != nil {
		maps.Copy(next.at, m.at)
	}
	edit(next.at)
	next.sorted = slices.SortedFunc(maps.Values(next.at), func(a, b *Buffer) int { return cmp.Compare(a.span.Base, b.span.Base) })
	t.m.Store(next)
}
