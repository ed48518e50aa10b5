package nvme

import "sync"

// A life counts those who work for the controller, and lets nobody in while it
// is down.
type life struct {
	mu     sync.Mutex
	empty  sync.Cond
	inside int
	up     bool
}

func (l *life) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		l.inside++
	}
	return l.up
}

func (l *life) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
	if l.inside == 0 {
		l.empty.Broadcast()
	}
}

func (l *life) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up = true
}

// shut returns when nobody is inside any more.
func (l *life) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up = false
	for l.inside > 0 {
		l.empty.Wait()
	}
}
