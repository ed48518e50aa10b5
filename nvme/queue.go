package nvme

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// A command id has the index of a slot in its low bits and a count of the slot's
// uses above, so that a repeated or late completion does not complete the slot's
// next command. The highest index is unused, because the specification reserves
// id 0xffff.
const (
	slotBits = 10
	slotMask = 1<<slotBits - 1
)

// A slot is the state of a command in flight.
type slot struct {
	r        *Request // nil if the slot is free
	cid      uint16
	pos      uint32        // in the submission queue
	deadline time.Duration // since Controller.epoch
	aborted  bool
}

// A Queue is a submission queue and its completion queue. It is safe for
// concurrent use. Each completed request is delivered once: to the caller that
// waits for it, or to the next caller of Poll or Reap.
type Queue struct {
	c     *Controller
	id    uint16
	depth int
	n     uint32 // entries of either queue: depth + 1

	mem         *Buffer // of the queues and of PRP lists
	sqBus       uint64
	cqBus       uint64
	sq          []abi.Command
	cq          []abi.Completion
	lists       []uint64
	listOff     uint64 // offset in mem
	perSlot     int    // bytes of lists
	irq         <-chan struct{}
	sqdb        uint64 // doorbells
	cqdb        uint64
	token       chan struct{} // the goroutine that has it polls for completions
	timer       *time.Timer   // of the goroutine that has the token
	room        chan struct{} // receives a value if there are roomWaiters and a slot is free
	roomWaiters atomic.Int32

	answered chan struct{} // receives a value if there are reapers and a request is done
	reapers  atomic.Int32

	mu        sync.Mutex
	resumed   sync.Cond // stopped became false, or dead was set
	stopped   bool      // during a reset of the controller
	dead      error     // why the queue accepts no commands
	gen       uint64    // Controller.gen after the last reset
	tail      uint32
	head      uint32 // of the submission queue: commands before it were fetched
	cqHead    uint32
	phase     bool
	slots     []slot
	free      []uint16
	ready     list          // done, not yet delivered
	checkedAt time.Duration // time of the last health check
	strays    uint64
}

// layout has the offsets in a queue's memory.
type layout struct{ sq, cq, lists, total int }

func (c *Controller) layout(n uint32, depth, perSlot int) layout {
	up := func(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }
	sq := up(int(n) * abi.CommandSize)
	cq := up(int(n) * abi.CompletionSize)
	return layout{0, sq, sq + cq, sq + cq + depth*perSlot}
}

// newQueue allocates a queue pair. create makes it known to the controller.
func (c *Controller) newQueue(id uint16, depth int) (*Queue, error) {
	perSlot := listPages(c.maxTransfer) * pageSize
	if id == 0 {
		perSlot = 0 // admin commands transfer at most one page
	}
	for {
		n := uint32(depth + 1)
		at := c.layout(n, depth, perSlot)
		mem, err := c.AllocHost(at.total)
		if err != nil {
			return nil, err
		}
		// A queue must be contiguous on the bus. Without an IOMMU, host memory
		// may be contiguous only within a page: then the queue is one page.
		if !mem.table.contiguous(0, at.cq) || !mem.table.contiguous(at.cq, at.lists) {
			if err := mem.Close(); err != nil {
				return nil, err
			}
			depth = pageSize/abi.CommandSize - 1
			continue
		}
		return c.fillQueue(&Queue{c: c, id: id, depth: depth, n: n, mem: mem, perSlot: perSlot}, at), nil
	}
}

// contiguous reports whether the bytes from off to end have contiguous bus
// addresses.
func (t pageTable) contiguous(off, end int) bool {
	for o := off; o < end; o += pageSize {
		if t.at(uint64(o)) != t.at(uint64(off))+uint64(o-off) {
			return false
		}
	}
	return true
}

func (c *Controller) fillQueue(q *Queue, at layout) *Queue {
	b := q.mem.host
	q.sq, q.cq = array[abi.Command](b[at.sq:at.cq])[:q.n], array[abi.Completion](b[at.cq:at.lists])[:q.n]
	q.sqBus, q.cqBus = q.mem.table.at(uint64(at.sq)), q.mem.table.at(uint64(at.cq))
	if q.perSlot > 0 {
		q.lists = array[uint64](b[at.lists:at.total])
	}
	q.listOff = uint64(at.lists)
	q.sqdb, q.cqdb = abi.SQTDBL(q.id, c.cap.DSTRD()), abi.CQHDBL(q.id, c.cap.DSTRD())
	q.token = make(chan struct{}, 1)
	q.token <- struct{}{}
	q.room, q.answered = make(chan struct{}, 1), make(chan struct{}, 1)
	q.timer = time.NewTimer(time.Hour)
	q.resumed.L = &q.mu
	q.slots = make([]slot, q.depth)
	for i := range q.slots {
		q.slots[i].cid = uint16(i)
		q.free = append(q.free, uint16(i))
	}
	q.gen = c.gen.Load()
	q.rewind()
	return q
}

// rewind empties the queue. The caller holds mu, or is the only user.
func (q *Queue) rewind() {
	clear(q.cq)
	q.tail, q.head, q.cqHead, q.phase = 0, 0, 0, true
}

// slotLists is the memory for the PRP lists of a slot.
func (q *Queue) slotLists(i int) prpLists {
	n := q.perSlot / 8
	return prpLists{q.lists[i*n : (i+1)*n], q.mem.table, q.listOff + uint64(i*q.perSlot)}
}

// NewQueue makes a queue pair for depth commands in flight. Depth is smaller if
// the host memory is not contiguous on the bus.
func (c *Controller) NewQueue(depth int) (*Queue, error) {
	if depth < 1 || depth > maxDepth {
		return nil, fmt.Errorf("nvme %s: new queue: depth %d must be 1 to %d", c.Name(), depth, maxDepth)
	}
	c.lock()
	defer c.unlock()
	id, err := c.allocID()
	if err != nil {
		return nil, err
	}
	q, err := c.newQueue(id, min(depth, int(c.cap.MQES())))
	if err != nil {
		c.freeID(id)
		return nil, err
	}
	q.irq = c.interrupt(int(id))
	if err := c.create(q); err != nil {
		c.freeID(id)
		return nil, errors.Join(err, q.mem.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[id] = q
	return q, nil
}

// Depth is the largest number of commands in flight.
func (q *Queue) Depth() int { return q.depth }

// Strays is the number of completions that belong to no command in flight. It is
// 0 for a correct controller.
func (q *Queue) Strays() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.strays
}

// Close deletes the queue pair. Requests in flight end with ErrClosed.
func (q *Queue) Close() error {
	c := q.c
	c.lock()
	defer c.unlock()
	c.mu.Lock()
	known := c.queues[q.id] == q
	delete(c.queues, q.id)
	c.mu.Unlock()
	if !known {
		return fmt.Errorf("nvme %s: queue %d: %w", c.Name(), q.id, ErrClosed)
	}
	q.rejectSubmits(ErrClosed)
	err := c.remove(q)
	if err != nil && !c.halted {
		c.halt(err) // so that the controller does not write to the memory
	}
	q.failInFlight(ErrClosed)
	c.freeID(q.id)
	return errors.Join(err, q.mem.Close())
}

// rejectSubmits makes further submissions fail with err.
func (q *Queue) rejectSubmits(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead = cmp.Or(q.dead, err)
	q.resumed.Broadcast()
}
