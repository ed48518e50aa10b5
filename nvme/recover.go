package nvme

import (
	"context"
	"errors"
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// handle does something about trouble of a queue. held says that the caller
// holds resetting: then a controller that is broken is only stopped, and the
// caller's unlock brings it up again.
func (c *Controller) handle(q *Queue, t trouble, held bool) {
	switch t.kind {
	case late:
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

// abortCommand has the controller give a command up, if it can. The command is
// answered either way; should the controller not answer this one, it is reset.
func (c *Controller) abortCommand(sqid, cid uint16) {
	cmd := abi.Command{Opcode: abi.ADMIN_ABORT, CDW10: uint32(sqid) | uint32(cid)<<16}
	_, _ = c.do(context.Background(), "abort", &cmd, false)
}

// lock keeps the set of queues as it is, and resets away.
func (c *Controller) lock() { c.resetting.Lock() }

// unlock brings a controller that was stopped up again.
func (c *Controller) unlock() {
	defer c.resetting.Unlock()
	if !c.halted {
		return
	}
	if err := c.revive(); err != nil {
		c.halt(err) // it may have come up half way
		c.bury(fmt.Errorf("the controller does not come up again: %w", err))
	}
}

// Reset resets the controller. Commands in flight fail with ErrReset; queues,
// buffers and namespaces stay what they are.
func (c *Controller) Reset() error {
	c.lock()
	c.halt(errors.New("as asked for"))
	c.unlock()
	return c.Err()
}

// Resets is how often the controller was reset since it was opened.
func (c *Controller) Resets() uint64 { return c.gen.Load() }

// all is every queue there is.
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

// halt stops the controller and answers everything that is in flight. When a
// command is answered the controller does not touch its memory any more. Call
// with resetting held.
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
		c.bury(err)
	}
	for _, q := range c.all() {
		q.abandon(answer)
	}
}

// stop ends all activity of the controller, by force if need be.
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

// bury gives the controller up. Call with resetting held.
func (c *Controller) bury(err error) {
	c.mu.Lock()
	if c.dead == nil {
		c.dead = err
	}
	c.mu.Unlock()
	c.halted = false
	for _, q := range c.all() {
		q.kill(err)
	}
}

// Err is why the controller was given up, or nil.
func (c *Controller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// revive brings a controller that was stopped up again, with the queues that it
// had. Call with resetting held.
func (c *Controller) revive() error {
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

// resume lets submissions in.
func (q *Queue) resume(gen uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped, q.gen = false, gen
	q.going.Broadcast()
}
