// Package freelist keeps objects for reuse.
package freelist

import "sync"

// A List has objects that are not in use. A sync.Pool would drop some at each garbage
// collection. The zero value is empty.
type List[T any] struct {
	mu   sync.Mutex
	free []*T
}

// Get returns an object of the list, or a new one.
func (l *List[T]) Get() *T {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.free)
	if n == 0 {
		return new(T)
	}
	x := l.free[n-1]
	l.free = l.free[:n-1]
	return x
}

// Put adds an object that is not in use any more.
func (l *List[T]) Put(x *T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, x)
}
