// Package faults keeps the faults that a test has injected.
package faults

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A List is a list of faults that is rarely changed and read without a lock. The zero
// value is empty.
type List[T comparable] struct {
	mu   sync.Mutex // held by writers
	list atomic.Pointer[[]T]
}

// Add adds a fault until heal is called.
func (l *List[T]) Add(x T) (heal func()) {
	l.edit(func(list []T) []T { return append(list, x) })
	return func() {
		l.edit(func(list []T) []T {
			if i := slices.Index(list, x); i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
			return list
		})
	}
}

func (l *List[T]) edit(change func([]T) []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []T
	if old := l.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = change(list)
	l.list.Store(&list)
}

// Any reports whether a fault matches.
func (l *List[T]) Any(match func(T) bool) bool {
	list := l.list.Load()
	return list != nil && slices.ContainsFunc(*list, match)
}
