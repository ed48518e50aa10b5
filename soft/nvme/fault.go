package nvme

import (
	"slices"
	"sync"
	"sync/atomic"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// An Op is the direction of an access to the medium.
type Op uint8

const (
	Read Op = iota
	Write
)

// faults are what is wrong with a controller.
type faults struct {
	mu     sync.Mutex
	bad    atomic.Pointer[[]badBlock]
	stalls atomic.Int64 // commands to hold up
	hung   atomic.Bool
}

type badBlock struct {
	nsid uint32
	lba  uint64
	op   Op
}

// FailBlock makes every access in one direction to a block fail, as worn flash
// does, until heal is called.
func (c *Controller) FailBlock(nsid uint32, lba uint64, op Op) (heal func()) {
	b := badBlock{nsid, lba, op}
	c.faults.edit(func(list []badBlock) []badBlock { return append(list, b) })
	return func() {
		c.faults.edit(func(list []badBlock) []badBlock {
			if i := slices.Index(list, b); i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
			return list
		})
	}
}

func (f *faults) edit(change func([]badBlock) []badBlock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []badBlock
	if old := f.bad.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = change(list)
	f.bad.Store(&list)
}

// hit reports whether an access touches a bad block.
func (f *faults) hit(nsid uint32, lba, n uint64, op Op) bool {
	list := f.bad.Load()
	return list != nil && slices.ContainsFunc(*list, func(b badBlock) bool {
		return b.nsid == nsid && b.op == op && b.lba-lba < n
	})
}

// Stall has the next n I/O commands held up until they are aborted or the
// controller is reset.
func (c *Controller) Stall(n int) { c.faults.stalls.Store(int64(n)) }

// Fail is a fatal error: CSTS.CFS is set, and commands are not answered until
// the controller is reset.
func (c *Controller) Fail() { c.die() }

// Hang has the controller ignore doorbells and even CC, until [Controller.Reset].
func (c *Controller) Hang() { c.faults.hung.Store(true) }

// A Completion is a completion queue entry. DW3 has the command id in bits 0-15, a
// phase tag in bit 16, which must be 0 here, and the status in bits 17-31.
type Completion struct {
	DW0, DW1   uint32
	SQHD, SQID uint16
	DW3        uint32
}

// Tamper has fn choose the entries that are posted instead of each completion: none
// loses it. A phase tag that is set in an entry makes it wrong. nil ends it.
func (c *Controller) Tamper(fn func(Completion) []Completion) {
	if fn == nil {
		c.tamper.Store(nil)
		return
	}
	c.tamper.Store(&fn)
}

// A parked command is held up.
type parked struct {
	sq  *subQueue
	cid uint16
}

// park holds a command up, if there is a fault that does.
func (c *Controller) park(sq *subQueue, cid uint16) bool {
	if c.faults.stalls.Load() <= 0 || c.faults.stalls.Add(-1) < 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked = append(c.parked, parked{sq, cid})
	return true
}

// unpark answers parked commands that match.
func (c *Controller) unpark(s abi.Status, match func(parked) bool) (n int) {
	c.mu.Lock()
	var list []parked
	c.parked = slices.DeleteFunc(c.parked, func(p parked) bool {
		if match(p) {
			list = append(list, p)
			return true
		}
		return false
	})
	c.mu.Unlock()
	for _, p := range list {
		c.complete(p.sq, p.cid, 0, s)
	}
	return len(list)
}

// Parked is the number of commands that are held up.
func (c *Controller) Parked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.parked)
}
