package cuda

import (
	"sync"

	"github.com/culvert-io/culvert/internal/dl"
)

// hostFuncs are the functions waiting in streams. C has their numbers.
var hostFuncs funcTable

// hostCallback is the C function that calls them. There is one for the process,
// because callbacks are limited in number and cannot be freed.
var hostCallback = sync.OnceValue(func() dl.Func {
	return dl.Callback(func(id uintptr) {
		if f := hostFuncs.take(id); f != nil {
			f()
		}
	})
})

type funcTable struct {
	mu   sync.Mutex
	last uintptr
	m    map[uintptr]func()
}

func (t *funcTable) put(f func()) uintptr {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = make(map[uintptr]func())
	}
	t.last++
	t.m[t.last] = f
	return t.last
}

func (t *funcTable) take(id uintptr) func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.m[id]
	delete(t.m, id)
	return f
}
