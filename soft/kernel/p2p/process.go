package p2p

import (
	"slices"
	"sync"
)

// A Process owns memory, open files and pins.
type Process struct {
	PID int

	mu   sync.Mutex
	exit []*func()
}

// A Task is a thread of a process. Calls take the calling one.
type Task struct{ Process *Process }

// Task returns a new thread.
func (p *Process) Task() *Task { return &Task{p} }

// OnExit has fn called when the process ends, after functions registered before.
// cancel undoes it.
func (p *Process) OnExit(fn func()) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &fn
	p.exit = append(p.exit, e)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exit = slices.DeleteFunc(p.exit, func(x *func()) bool { return x == e })
	}
}

// Exit ends the process: it calls the functions of OnExit in the order of
// registration, as a kernel closes descriptors. A second call does nothing.
func (p *Process) Exit() {
	for {
		p.mu.Lock()
		if len(p.exit) == 0 {
			p.mu.Unlock()
			return
		}
		fn := p.exit[0]
		p.exit = p.exit[1:]
		p.mu.Unlock()
		(*fn)()
	}
}
