package nvme

import (
	"slices"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// An Op is the direction of an access to the medium.
type Op uint8

const (
	Read Op = iota
	Write
)

type badBlock struct {
	nsid uint32
	lba  uint64
	op   Op
}

// FailBlock makes every access in one direction to a block fail, until heal is
// called.
func (c *Controller) FailBlock(nsid uint32, lba uint64, op Op) (heal func()) {
	return c.badBlock.Add(badBlock{nsid, lba, op})
}

// bad reports whether an access touches a bad block.
func (c *Controller) bad(nsid uint32, lba, n uint64, op Op) bool {
	return c.badBlock.Any(func(b badBlock) bool { return b.nsid == nsid && b.op == op && b.lba-lba < n })
}

// Stall parks the next n I/O commands until they are aborted or the controller is
// reset.
func (c *Controller) Stall(n int) { c.stalls.Store(int64(n)) }

// Fail sets CSTS.CFS, a fatal error: commands are not completed until the controller
// is reset.
func (c *Controller) Fail() { c.die() }

// Hang makes the controller ignore doorbells and CC until [Controller.Reset].
func (c *Controller) Hang() { c.hung.Store(true) }

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

// A parked command waits for an abort or a reset.
type parked struct {
	sq  *subQueue
	cid uint16
}

// park parks a command if a fault requires it.
func (c *Controller) park(sq *subQueue, cid uint16) bool {
	if c.stalls.Load() <= 0 || c.stalls.Add(-1) < 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parked = append(c.parked, parked{sq, cid})
	return true
}

// unpark completes matching parked commands.
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

// Parked returns the number of parked commands.
func (c *Controller) Parked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.parked)
}
