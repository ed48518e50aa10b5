package nvme

import abi "github.com/culvert-io/culvert/internal/abi/nvme"

// A Thread executes commands in the thread that submits them, like a polled queue on
// hardware: no thread is woken for a command or its completion. It serves one caller
// at a time.
type Thread struct{ w worker }

// Thread returns a new Thread.
func (c *Controller) Thread() *Thread { return &Thread{worker{c: c}} }

// Ring stores to the tail doorbell of a submission queue and executes a share of its
// commands. If there is one command, it is completed when Ring returns, unless a
// fault prevents it.
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
