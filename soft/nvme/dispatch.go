package nvme

import "sync"

// A dispatcher gives queues with commands to workers.
type dispatcher struct {
	mu     sync.Mutex
	rung   sync.Cond
	ready  []*subQueue
	idle   int // waiting workers
	closed bool
}

// ring tells that a queue may have commands.
func (c *Controller) ring(sq *subQueue) {
	if sq == nil || sq.queued.Swap(true) {
		return
	}
	d := &c.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready = append(d.ready, sq)
	if d.idle > 0 {
		d.rung.Signal()
	}
}

// next waits for a queue with commands. It returns nil when the controller is closed.
func (d *dispatcher) next() *subQueue {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.ready) == 0 && !d.closed {
		d.idle++
		d.rung.Wait()
		d.idle--
	}
	if d.closed {
		return nil
	}
	sq := d.ready[0]
	n := copy(d.ready, d.ready[1:])
	d.ready[n] = nil
	d.ready = d.ready[:n]
	return sq
}

func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.rung.Broadcast()
}

// work serves queues until the controller is closed.
func (c *Controller) work() {
	w := &worker{c: c}
	for {
		sq := c.dispatcher.next()
		if sq == nil {
			return
		}
		// The tail is read after this: a later ring queues again.
		sq.queued.Store(false)
		if !c.users.Enter() {
			continue
		}
		w.serve(sq)
		c.users.Leave()
	}
}
