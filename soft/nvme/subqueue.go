package nvme

import (
	"sync"
	"sync/atomic"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
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

	mu    sync.Mutex
	done  sync.Cond
	gone  bool // deleted, or the controller was reset
	taken int  // commands that workers have in their hands
}

func newSubQueue(id uint16, base uint64, size uint32, stride uint8, cq *compQueue) *subQueue {
	sq := &subQueue{id: id, base: base, size: size, doorbell: abi.SQTDBL(id, stride), cq: cq}
	sq.done.L = &sq.mu
	return sq
}

// batch is how many commands a worker takes at a time, at most.
const batch = 16

// A worker carries commands out. What it needs for that it keeps.
type worker struct {
	c      *Controller
	cmds   [batch]abi.Command
	ranges []pcie.Range
	list   [minPage << mpsMax]byte // a page of a PRP list
}

// serve fetches some commands and carries them out.
func (w *worker) serve(sq *subQueue) {
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

// fetch takes a share of the commands that wait in a queue.
func (w *worker) fetch(sq *subQueue) int {
	c := w.c
	sq.mu.Lock()
	defer sq.mu.Unlock()
	head, tail := sq.head.Load(), c.regs.load32(sq.doorbell)
	if sq.gone || c.fatal.Load() || c.faults.hung.Load() || tail >= sq.size || tail == head {
		return 0 // a tail that is none rings in vain
	}
	waiting := (tail + sq.size - head) % sq.size
	// Half of a fair share, so that no worker sits on commands that another
	// could carry out.
	n := min(max(waiting/uint32(2*c.cfg.Workers), 1), batch, sq.size-head)
	loan, err := c.fn.Lend(sq.base+uint64(head)*abi.CommandSize, int(n)*abi.CommandSize, pcie.Read)
	if err != nil {
		c.die()
		return 0
	}
	gather(commandBytes(w.cmds[:n]), loan.Segs())
	if loan.Return(int(n)*abi.CommandSize) != nil {
		return 0 // unplugged: what was read is not to be trusted
	}
	c.stats.fetched.Add(uint64(n) * abi.CommandSize)
	sq.head.Store((head + n) % sq.size)
	sq.taken += int(n)
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

// drop says that a worker has done with a command.
func (sq *subQueue) drop() {
	sq.mu.Lock()
	defer sq.mu.Unlock()
	sq.taken--
	if sq.taken == 0 {
		sq.done.Broadcast()
	}
}

// end takes no more commands and waits for those that workers have.
func (sq *subQueue) end() {
	sq.mu.Lock()
	defer sq.mu.Unlock()
	sq.gone = true
	for sq.taken > 0 {
		sq.done.Wait()
	}
}
