package nvme

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// handle handles a problem of a queue: it aborts a command or resets the
// controller. If the caller holds resetting (held), the controller is only
// stopped, and the caller's unlock reinitializes it.
func (c *Controller) handle(q *Queue, t problem, held bool) {
	switch t.kind {
	case overdue:
		c.abortCommand(q.id, t.cid)
	case broken:
		if !held {
			c.lock()
			defer c.unlock()
		}
		if c.gen.Load() == t.gen {
			c.halt(t.cause)
		}
	}
}

// abortCommand aborts a command, if the controller can. The command completes
// either way. If the Abort does not complete, the controller is reset.
func (c *Controller) abortCommand(sqid, cid uint16) {
	cmd := abi.Command{Opcode: abi.ADMIN_ABORT, CDW10: uint32(sqid) | uint32(cid)<<16}
	_, _ = c.do(context.Background(), "abort", &cmd, false)
}

// lock excludes resets and changes of the set of queues.
func (c *Controller) lock() { c.resetting.Lock() }

// unlock reinitializes the controller if it was stopped.
func (c *Controller) unlock() {
	defer c.resetting.Unlock()
	if !c.halted {
		return
	}
	if err := c.reinit(); err != nil {
		c.halt(err) // it may be partly enabled
		c.markDead(fmt.Errorf("reinitialize controller: %w", err))
	}
}

// Reset resets the controller. Commands in flight fail with ErrReset. Queues,
// buffers and namespaces stay valid.
func (c *Controller) Reset() error {
	c.lock()
	c.halt(errors.New("reset requested"))
	c.unlock()
	return c.Err()
}

// Resets is the number of resets since Open.
func (c *Controller) Resets() uint64 { return c.gen.Load() }

// all is a list of all queues, the admin queue first.
func (c *Controller) all() []*Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []*Queue{c.admin}
	for id := range uint16(maxQueues) + 1 {
		if q := c.queues[id]; q != nil {
			list = append(list, q)
		}
	}
	return list
}

// halt stops the controller, then ends all commands in flight: the controller no
// longer accesses their memory. The caller holds resetting.
func (c *Controller) halt(cause error) {
	if c.halted || c.Err() != nil {
		return
	}
	c.halted = true
	c.gen.Add(1)
	for _, q := range c.all() {
		q.mu.Lock()
		q.stopped = true
		q.mu.Unlock()
	}
	err := c.stop()
	answer := fmt.Errorf("%w: %w", ErrReset, cause)
	if err != nil {
		answer = err
		c.markDead(err)
	}
	for _, q := range c.all() {
		q.failInFlight(answer)
	}
}

// stop disables the controller, by a function level reset if necessary.
func (c *Controller) stop() error {
	err := c.disable()
	if err == nil || errors.Is(err, ErrRemoved) {
		return err
	}
	if rerr := c.t.Reset(); rerr != nil {
		return errors.Join(err, rerr)
	}
	return c.disable()
}

// markDead makes all further calls fail with err. The caller holds resetting.
func (c *Controller) markDead(err error) {
	c.mu.Lock()
	c.dead = cmp.Or(c.dead, err)
	c.mu.Unlock()
	c.halted = false
	for _, q := range c.all() {
		q.rejectSubmits(err)
	}
}

// Err is the reason why the controller is unusable, or nil.
func (c *Controller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// reinit enables a stopped controller and creates its queues again. The caller
// holds resetting.
func (c *Controller) reinit() error {
	c.halted = false
	queues := c.all()
	for _, q := range queues {
		q.mu.Lock()
		q.rewind()
		q.mu.Unlock()
	}
	if err := c.enable(); err != nil {
		return err
	}
	c.admin.resume(c.gen.Load())
	if _, err := c.grant(); err != nil {
		return err
	}
	for _, q := range queues[1:] {
		if err := c.create(q); err != nil {
			return err
		}
		q.resume(c.gen.Load())
	}
	return nil
}

// resume accepts submissions again.
func (q *Queue) resume(gen uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped, q.gen = false, gen
	q.resumed.Broadcast()
}
