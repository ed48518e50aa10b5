package nvme

import (
	"sync"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A compQueue is a completion queue.
type compQueue struct {
	id       uint16
	base     uint64
	size     uint32
	doorbell uint64
	vector   int // -1 without interrupts

	mu      sync.Mutex
	head    uint32 // the last valid value of the doorbell
	tail    uint32
	phase   uint32 // of the next entries, as in dword 3
	waiting []Completion
	users   int // submission queues; guarded by Controller.mu
}

const phaseBit = 1 << 16

func newCompQueue(id uint16, base uint64, size uint32, stride uint8, vector int) *compQueue {
	return &compQueue{id: id, base: base, size: size, doorbell: abi.CQHDBL(id, stride), vector: vector, phase: phaseBit}
}

// complete completes a command.
func (c *Controller) complete(sq *subQueue, cid uint16, dw0 uint32, s abi.Status) {
	c.cfg.Points.At("nvme.post", uint64(sq.id))
	e := Completion{DW0: dw0, SQHD: uint16(sq.head.Load()), SQID: sq.id, DW3: abi.MakeDW3(cid, false, s)}
	if t := c.tamper.Load(); t != nil {
		for _, e := range (*t)(e) {
			c.post(sq.cq, e)
		}
		return
	}
	c.post(sq.cq, e)
}

// post writes an entry, or keeps it until there is room. A phase tag that is set in
// it makes it wrong.
func (c *Controller) post(cq *compQueue, e Completion) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if len(cq.waiting) > 0 || !cq.room(c) {
		cq.waiting = append(cq.waiting, e)
		return
	}
	c.write(cq, e)
}

// drain writes entries that wait for room.
func (c *Controller) drain(cq *compQueue) {
	if cq == nil {
		return
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	n := 0
	for n < len(cq.waiting) && cq.room(c) {
		c.write(cq, cq.waiting[n])
		n++
	}
	cq.waiting = cq.waiting[:copy(cq.waiting, cq.waiting[n:])]
}

// room reports whether the host has consumed the entry at the tail. Call with mu
// held.
func (cq *compQueue) room(c *Controller) bool {
	if head := c.regs.load32(cq.doorbell); head < cq.size {
		cq.head = head
	}
	return (cq.tail+1)%cq.size != cq.head
}

// write writes an entry to memory. Call with mu held.
func (c *Controller) write(cq *compQueue, e Completion) {
	access, err := c.fn.Acquire(cq.base+uint64(cq.tail)*abi.CompletionSize, abi.CompletionSize, pcie.Write)
	if err != nil {
		c.die()
		return
	}
	e.DW3 ^= cq.phase
	putCompletion(access.Segs(), &e)
	if access.Release(abi.CompletionSize) != nil {
		return // unplugged
	}
	c.stats.posted.Add(abi.CompletionSize)
	if cq.tail++; cq.tail == cq.size {
		cq.tail = 0
		cq.phase ^= phaseBit
	}
	c.interrupt(cq.vector)
}
