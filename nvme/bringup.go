package nvme

import (
	"errors"
	"fmt"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// readCAP reads the controller's capabilities, and fails if the driver does not
// support them.
func (c *Controller) readCAP() error {
	c.cap = abi.CAP(c.t.Load64(abi.REG_CAP))
	switch {
	case uint64(c.cap) == 1<<64-1:
		return ErrRemoved
	case c.cap.MQES() < 1:
		return fmt.Errorf("CAP %#x: queues of %d entries: the specification requires 2", uint64(c.cap), c.cap.MQES()+1)
	case c.cap.CSS()&1 == 0:
		return fmt.Errorf("CAP %#x: controller has no NVM command set", uint64(c.cap))
	case c.cap.MPSMIN() > 0:
		return fmt.Errorf("CAP %#x: smallest memory page of %d bytes exceeds the driver's %d", uint64(c.cap), abi.PageSize(c.cap.MPSMIN()), pageSize)
	case abi.CQHDBL(1, c.cap.DSTRD())+4 > c.t.BARSize():
		return fmt.Errorf("CAP %#x: doorbells of the first queue at %#x are outside BAR0 of %d bytes", uint64(c.cap), abi.SQTDBL(1, c.cap.DSTRD()), c.t.BARSize())
	}
	return nil
}

// await waits until CSTS & mask == want.
func (c *Controller) await(what string, mask, want uint32) error {
	// CAP.TO is the worst case, but some controllers report 0.
	limit := time.Duration(c.cap.TO())*500*time.Millisecond + time.Second
	pause := 10 * time.Microsecond
	for start := time.Now(); ; {
		csts := c.t.Load32(abi.REG_CSTS)
		switch {
		case csts == abi.GONE:
			return ErrRemoved
		case csts&abi.CSTS_CFS != 0 && want&abi.CSTS_RDY != 0:
			return fmt.Errorf("%s: %w", what, ErrFatal)
		case csts&mask == want:
			return nil
		case time.Since(start) > limit:
			return fmt.Errorf("%s: CSTS is %#x after %v: %w", what, csts, limit, ErrTimeout)
		}
		time.Sleep(pause)
		pause = min(2*pause, 10*time.Millisecond)
	}
}

// disable resets the controller: it clears CC.EN and waits for CSTS.RDY to
// clear. Then the controller has no queues and does no DMA.
func (c *Controller) disable() error {
	cc := c.t.Load32(abi.REG_CC)
	if cc == abi.GONE {
		return ErrRemoved
	}
	if cc&abi.CC_EN != 0 {
		c.t.Store32(abi.REG_CC, cc&^(abi.CC_EN|abi.CC_SHN_MASK))
	}
	return c.await("reset", abi.CSTS_RDY, 0)
}

// enable enables the controller with its admin queues.
func (c *Controller) enable() error {
	last := c.admin.n - 1
	c.t.Store32(abi.REG_AQA, last<<abi.AQA_ASQS_SHIFT|last<<abi.AQA_ACQS_SHIFT)
	c.t.Store64(abi.REG_ASQ, c.admin.sqBus)
	c.t.Store64(abi.REG_ACQ, c.admin.cqBus)
	c.t.Store32(abi.REG_CC, abi.CC_EN|abi.SQES<<abi.CC_IOSQES_SHIFT|abi.CQES<<abi.CC_IOCQES_SHIFT)
	return c.await("enable", abi.CSTS_RDY, abi.CSTS_RDY)
}

// shutdown prepares the controller for power off.
func (c *Controller) shutdown() error {
	cc := c.t.Load32(abi.REG_CC)
	if cc == abi.GONE || cc&abi.CC_EN == 0 || c.t.Load32(abi.REG_CSTS)&abi.CSTS_RDY == 0 {
		return nil
	}
	c.t.Store32(abi.REG_CC, cc&^abi.CC_SHN_MASK|abi.CC_SHN_NORMAL)
	err := c.await("shutdown", abi.CSTS_SHST_MASK, abi.CSTS_SHST_COMPLETE)
	if errors.Is(err, ErrRemoved) {
		return nil
	}
	return err
}
