package nvme

import abi "github.com/culvert-io/culvert/internal/abi/nvme"

// A Thread carries out commands for the one who submits them, as a polled queue
// does on hardware: nobody is woken up for a command, nor for its answer. It
// serves one caller at a time.
type Thread struct{ w worker }

// Thread lends the controller a thread.
func (c *Controller) Thread() *Thread { return &Thread{worker{c: c}} }

// Ring stores to the tail doorbell of a submission queue and carries out a share of
// the commands that are there. One command has been answered when it returns,
// unless something is wrong with the controller or holds it up.
func (t *Thread) Ring(id uint16, tail uint32) {
	c := t.w.c
	if int(id) >= len(c.sqs) || c.fn.Removed() {
		return
	}
	c.regs.store32(abi.SQTDBL(id, c.cfg.Stride), tail)
	sq := c.sqs[id].Load()
	if sq == nil || !c.users.Enter() {
		return
	}
	t.w.serve(sq)
	c.users.Leave()
}
