package nvme

import (
	"io/fs"
	"runtime"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// A manager enables and disables the controller. It is one goroutine.
type manager struct {
	c    *Controller
	up   bool // between enable and disable
	gone bool // the function was unplugged
	idle int  // polls since the registers last changed
}

// kick makes the manager check the registers.
func (c *Controller) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Controller) manage() {
	m := &manager{c: c}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		m.look()
		var again <-chan time.Time
		if c.mappings.Load() > 0 {
			timer.Reset(m.pause())
			again = timer.C
		}
		select {
		case <-c.stop:
			return
		case request := <-c.requests:
			request(m)
		case <-c.wake:
			m.idle = 0
		case <-again:
		}
	}
}

// pause returns the time until the next poll of mapped registers. It yields a few
// times before it sleeps, and sleeps longer the longer nothing changes.
func (m *manager) pause() time.Duration {
	const spins, longest = 100, 500 * time.Microsecond
	if m.idle++; m.idle < spins {
		runtime.Gosched()
		return 0
	}
	return min(time.Duration(m.idle-spins+1)*time.Microsecond, longest)
}

// look acts on the registers.
func (m *manager) look() {
	c := m.c
	switch {
	case c.fn.Removed():
		m.vanish()
		return
	case c.hung.Load():
		return
	}
	cc := c.regs.load32(abi.REG_CC)
	switch on := cc&abi.CC_EN != 0; {
	case on && !m.up:
		m.enable(cc)
	case !on && m.up:
		m.disable()
	}
	if cc&abi.CC_SHN_MASK != 0 && c.regs.load32(abi.REG_CSTS)&abi.CSTS_SHST_MASK == 0 {
		c.flushAll()
		c.regs.or32(abi.REG_CSTS, abi.CSTS_SHST_COMPLETE)
	}
	if c.mappings.Load() > 0 && c.regs.load64(abi.REG_CAP) != c.cfg.cap() {
		c.identity() // a program overwrote read-only registers
	}
	m.scan()
}

// scan finds doorbells that were rung by stores to memory.
func (m *manager) scan() {
	c := m.c
	for i := range c.sqs {
		if cq := c.cqs[i].Load(); cq != nil {
			c.drain(cq)
		}
		sq := c.sqs[i].Load()
		if sq == nil {
			continue
		}
		if tail := c.regs.load32(sq.doorbell); tail < sq.size && tail != sq.head.Load() {
			m.idle = 0
			c.ring(sq)
		}
	}
}

// enable handles CC.EN from 0 to 1.
func (m *manager) enable(cc uint32) {
	c := m.c
	m.up = true
	aqa := c.regs.load32(abi.REG_AQA)
	sqs, cqs := aqa>>abi.AQA_ASQS_SHIFT&abi.AQA_MASK+1, aqa>>abi.AQA_ACQS_SHIFT&abi.AQA_MASK+1
	asq, acq := c.regs.load64(abi.REG_ASQ), c.regs.load64(abi.REG_ACQ)
	mps := uint8(cc>>abi.CC_MPS_SHIFT) & 0xf
	page := abi.PageSize(mps)
	if mps > mpsMax || cc>>abi.CC_CSS_SHIFT&7 != 0 || sqs < 2 || cqs < 2 || asq%page != 0 || acq%page != 0 || asq == 0 || acq == 0 {
		c.die()
		return
	}
	c.page.Store(page)
	c.silence() // a program that has mapped BAR0 may have stored anything
	cq := newCompQueue(0, acq, cqs, c.cfg.Stride, 0)
	c.cqs[0].Store(cq)
	c.sqs[0].Store(newSubQueue(0, asq, sqs, c.cfg.Stride, cq))
	c.users.Open()
	c.regs.store32(abi.REG_CSTS, abi.CSTS_RDY)
}

// disable handles CC.EN from 1 to 0. When CSTS.RDY is 0, no DMA is in flight and no
// queue exists.
func (m *manager) disable() {
	c := m.c
	c.users.Shut()
	c.mu.Lock()
	c.parked, c.queues = nil, false
	c.mu.Unlock()
	for i := range c.sqs {
		if sq := c.sqs[i].Swap(nil); sq != nil {
			sq.workers.Shut()
		}
		c.cqs[i].Store(nil)
	}
	c.silence()
	c.fatal.Store(false)
	m.up = false
	c.regs.store32(abi.REG_CSTS, 0)
}

// silence clears the doorbells.
func (c *Controller) silence() {
	for i := range c.sqs {
		c.regs.store32(abi.SQTDBL(uint16(i), c.cfg.Stride), 0)
		c.regs.store32(abi.CQHDBL(uint16(i), c.cfg.Stride), 0)
	}
}

// vanish makes mappings of BAR0 read as all ones, as those of a removed device.
func (m *manager) vanish() {
	if m.gone {
		return
	}
	m.gone = true
	m.c.fatal.Store(true)
	for off := uint64(0); off < m.c.BARSize(); off += 4 {
		m.c.regs.store32(off, abi.GONE)
	}
}

// Unplug removes the drive.
func (c *Controller) Unplug() {
	c.fn.Unplug()
	c.kick()
}

// Reset is a function level reset. It works in every state.
func (c *Controller) Reset() error {
	done := make(chan struct{})
	request := func(m *manager) {
		defer close(done)
		c.hung.Store(false)
		c.regs.store32(abi.REG_CC, 0)
		m.disable()
	}
	select {
	case c.requests <- request:
		<-done
		return nil
	case <-c.stop:
		return fs.ErrClosed
	}
}
