package nvme

import (
	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// batch is the most commands that a worker takes at a time.
const batch = 16

// A worker executes commands. It keeps the memory that this takes.
type worker struct {
	c      *Controller
	cmds   [batch]abi.Command
	ranges []pcie.Range
	one    [1]pcie.Range
	list   [minPage << mpsMax]byte // a page of a PRP list
}

// serve fetches some commands and executes them, unless the controller is disabled or
// the queue deleted.
func (w *worker) serve(sq *subQueue) {
	if !w.c.users.Enter() {
		return
	}
	defer w.c.users.Leave()
	if !sq.workers.Enter() {
		return
	}
	defer sq.workers.Leave()
	n := w.fetch(sq)
	if n == 0 {
		return
	}
	w.c.cfg.Points.At("nvme.fetched", uint64(sq.id))
	for i := range n {
		w.c.stats.commands.Add(1)
		w.execute(sq, &w.cmds[i])
	}
}

// fetch takes a share of the commands in a queue.
func (w *worker) fetch(sq *subQueue) int {
	c := w.c
	sq.mu.Lock()
	defer sq.mu.Unlock()
	head, tail := sq.head.Load(), c.regs.load32(sq.doorbell)
	if c.fatal.Load() || c.hung.Load() || tail >= sq.size || tail == head {
		return 0 // an invalid tail is ignored
	}
	waiting := (tail + sq.size - head) % sq.size
	// Half of a fair share, so that no worker keeps commands that another could
	// execute.
	n := min(max(waiting/uint32(2*c.cfg.Workers), 1), batch, sq.size-head)
	cmds := commandBytes(w.cmds[:n])
	if err := w.read(sq.base+uint64(head)*abi.CommandSize, cmds); err != nil {
		c.die()
		return 0
	}
	c.stats.fetched.Add(uint64(len(cmds)))
	sq.head.Store((head + n) % sq.size)
	if n < waiting {
		c.ring(sq)
	}
	return int(n)
}

// ring gives a queue that may have commands to a worker.
func (c *Controller) ring(sq *subQueue) {
	if sq == nil || sq.queued.Swap(true) {
		return
	}
	select {
	case c.ready <- sq:
	default:
		// Deleted queues fill the channel. The caller may be a worker and must not wait.
		go func() {
			select {
			case c.ready <- sq:
			case <-c.stop:
			}
		}()
	}
}

// work serves queues until the controller is closed.
func (c *Controller) work() {
	w := &worker{c: c}
	for {
		select {
		case <-c.stop:
			return
		case sq := <-c.ready:
			// From here on another ring counts: the tail is read after this.
			sq.queued.Store(false)
			w.serve(sq)
		}
	}
}

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
	if sq := c.sqs[id].Load(); sq != nil {
		t.w.serve(sq)
	}
}
