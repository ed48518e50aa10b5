package nvme

import (
	"sync"
	"sync/atomic"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/internal/gate"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A subQueue is a submission queue.
type subQueue struct {
	id       uint16
	base     uint64
	size     uint32
	doorbell uint64 // offset of the register
	cq       *compQueue

	queued atomic.Bool   // with the dispatcher
	head   atomic.Uint32 // written with mu held

	mu      sync.Mutex
	workers gate.Gate // shut when the queue is deleted, or the controller reset
}

func newSubQueue(id uint16, base uint64, size uint32, stride uint8, cq *compQueue) *subQueue {
	return &subQueue{id: id, base: base, size: size, doorbell: abi.SQTDBL(id, stride), cq: cq}
}

// batch is the most commands that a worker takes at a time.
const batch = 16

// A worker executes commands. It keeps the memory that this takes.
type worker struct {
	c      *Controller
	cmds   [batch]abi.Command
	ranges []pcie.Range
	list   [minPage << mpsMax]byte // a page of a PRP list
}

// serve fetches some commands and executes them.
func (w *worker) serve(sq *subQueue) {
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
	access, err := c.fn.Acquire(sq.base+uint64(head)*abi.CommandSize, int(n)*abi.CommandSize, pcie.Read)
	if err != nil {
		c.die()
		return 0
	}
	gather(commandBytes(w.cmds[:n]), access.Segs())
	if access.Release(int(n)*abi.CommandSize) != nil {
		return 0 // unplugged: the commands may be wrong
	}
	c.stats.fetched.Add(uint64(n) * abi.CommandSize)
	sq.head.Store((head + n) % sq.size)
	if n < waiting {
		c.ring(sq)
	}
	return int(n)
}

// gather copies segments into one.
func gather(dst []byte, segs [][]byte) {
	for _, seg := range segs {
		dst = dst[copy(dst, seg):]
	}
}
