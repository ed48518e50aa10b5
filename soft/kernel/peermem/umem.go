package peermem

import (
	"slices"
	"syscall"

	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A Umem is memory registered with an adapter: struct ib_umem.
type Umem struct {
	core     *Core
	id       uint64
	dev      *pcie.Function
	addr     uint64
	size     uint64
	unpin    func()        // of ordinary memory
	reg      *Registration // of peer memory; nil for ordinary memory
	mem      Memory
	ticket   uint64
	original []Segment // as returned by the client
	sg       []Segment

	invalidating int // invalidations in flight; guarded by Core.mu

	// lock guards what follows. It is a channel, not a mutex, because it is held from
	// Get to Activate.
	lock   chan struct{}
	state  state
	notify func()
}

type state uint8

const (
	unmapped state = iota
	mapped
	invalidated // the mapping is invalid, the client's calls follow
)

// SG returns the segments that the adapter may use.
func (u *Umem) SG() []Segment { return slices.Clone(u.sg) }

// Peer returns the name of the client, "" for ordinary memory.
func (u *Umem) Peer() string {
	if u.reg == nil {
		return ""
	}
	return u.reg.client.Name
}

// Get registers memory for an adapter: ordinary memory, or a peer's. If the peer may
// invalidate, the caller must call Activate or Release.
func (c *Core) Get(t *p2p.Task, dev *pcie.Function, addr, size uint64, writable bool, flags Flags) (*Umem, error) {
	return c.GetKnown(t, &Context{Known: false}, dev, addr, size, writable, flags)
}

// A Context is a process's use of an adapter in older MLNX_OFED.
type Context struct {
	// Known: the process declared its memory to be a peer's.
	Known bool
}

// GetKnown is the older flow: a known context asks the peers first, then tries
// ordinary memory.
func (c *Core) GetKnown(t *p2p.Task, x *Context, dev *pcie.Function, addr, size uint64, writable bool, flags Flags) (*Umem, error) {
	u, err := c.start(dev, addr, size)
	if err != nil {
		return nil, err
	}
	asked := x.Known && flags&Allow != 0
	if asked {
		if p, err := c.peer(t, u, writable, flags, syscall.EFAULT); err == nil {
			return p, nil
		}
	}
	if err = c.ordinary(u); err == nil {
		return u, nil
	}
	if asked || flags&Allow == 0 {
		return nil, err
	}
	return c.peer(t, u, writable, flags, err)
}

func (c *Core) start(dev *pcie.Function, addr, size uint64) (*Umem, error) {
	if dev == nil || size == 0 || addr+size < addr || addr+size > -systemPage&(1<<64-1) {
		return nil, syscall.EINVAL
	}
	if c.fails("umem") {
		return nil, syscall.ENOMEM
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	return &Umem{core: c, id: c.lastID, dev: dev, addr: addr, size: size, ticket: noTicket, lock: make(chan struct{}, 1)}, nil
}

// ordinary pins ordinary pages.
func (c *Core) ordinary(u *Umem) error {
	if c.cfg.Pin == nil {
		return syscall.EFAULT
	}
	if c.fails("sg_table") {
		return syscall.ENOMEM
	}
	sg, unpin, err := c.cfg.Pin(u.dev, u.addr, u.size)
	if err != nil {
		return err
	}
	u.sg, u.unpin, u.state = sg, unpin, mapped
	return nil
}

// peer registers u with a peer client. failed is why it is not ordinary memory, and
// the error if no peer claims it.
func (c *Core) peer(t *p2p.Task, u *Umem, writable bool, flags Flags, failed error) (*Umem, error) {
	reg, mem := c.acquire(t, u.addr, u.size, flags)
	if reg == nil {
		return nil, failed
	}
	c.cfg.Points.At("peermem.acquired", u.id)
	u.reg, u.mem = reg, mem
	if err := u.register(t, writable); err != nil {
		u.reg, u.mem = nil, nil
		mem.Release(t)
		reg.drop()
		return nil, err
	}
	return u, nil
}

// register runs between the client's Acquire and Release.
func (u *Umem) register(t *p2p.Task, writable bool) error {
	c, reg := u.core, u.reg
	if c.fails("peer_umem") || reg.invalidates && c.fails("ticket") {
		return syscall.ENOMEM
	}
	u.lock <- struct{}{}
	if reg.invalidates {
		reg.ticket(u)
	}
	if err := u.obtain(t, writable); err != nil {
		reg.erase(u)
		return err
	}
	reg.count(func(s *Stats) {
		s.AllocMRs++
		s.RegPages += uint64(len(u.sg))
		s.RegBytes += u.size
	})
	c.cfg.Points.At("peermem.mapped", u.id)
	if !reg.invalidates {
		<-u.lock
	}
	return nil
}

// obtain pins and maps. It has the lock. If it fails it unlocks before the client
// puts its pages: that may wait for an invalidation.
func (u *Umem) obtain(t *p2p.Task, writable bool) error {
	if err := u.mem.GetPages(t, true, !writable, u.ticket); err != nil {
		<-u.lock
		return err
	}
	u.core.cfg.Points.At("peermem.got", u.id)
	sg, err := u.mem.DMAMap(t, u.dev)
	if err == nil && u.core.fails("sg_copy") {
		u.mem.DMAUnmap(t, u.dev, sg)
		err = syscall.ENOMEM
	}
	if err != nil {
		<-u.lock
		u.mem.PutPages(t)
		return err
	}
	u.original, u.sg = sg, slices.Clone(sg)
	trim(u.sg, u.addr, u.size, u.mem.PageSize())
	u.state = mapped
	return nil
}

// Activate tells that the adapter is ready: from now on notify may be called, which
// destroys its key. It does nothing for clients that do not invalidate.
func (u *Umem) Activate(notify func()) {
	if u.reg == nil || !u.reg.invalidates {
		return
	}
	u.notify = notify
	<-u.lock
}

// Release ends a registration. It waits for an invalidation in flight. activated
// tells whether Activate was called.
func (u *Umem) Release(t *p2p.Task, activated bool) {
	points := u.core.cfg.Points
	points.At("peermem.release", u.id)
	if u.reg == nil {
		u.unpin()
		return
	}
	if u.reg.invalidates && !activated {
		<-u.lock
	}
	u.reg.erase(u)
	points.At("peermem.stopped", u.id)
	u.lock <- struct{}{}
	was := u.state
	u.state = unmapped
	<-u.lock
	// The client's calls may wait for a callback of the client, so no lock is held.
	if was != unmapped {
		u.giveBack(t)
	}
	u.reg.count(func(s *Stats) {
		s.DeallocMRs++
		s.DeregPages += uint64(len(u.original))
		s.DeregBytes += u.size
	})
	u.mem.Release(t)
	u.reg.drop()
}

// giveBack has the client unmap and unpin, with its own segments.
func (u *Umem) giveBack(t *p2p.Task) {
	u.mem.DMAUnmap(t, u.dev, u.original)
	u.mem.PutPages(t)
}

// Invalidate is called by a client that loses a registration's memory. When it
// returns the adapter cannot access it. An old ticket does nothing.
func (r *Registration) Invalidate(t *p2p.Task, ticket uint64) {
	c := r.core
	c.mu.Lock()
	r.stats.FreeCallbacks++
	u := r.tickets[ticket]
	if u != nil {
		u.invalidating++
	}
	c.mu.Unlock()
	c.cfg.Points.At("peermem.invalidate", ticket)
	if u == nil {
		return
	}
	u.invalidate(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	u.invalidating--
	c.changed.Broadcast()
}

func (u *Umem) invalidate(t *p2p.Task) {
	u.lock <- struct{}{}
	u.core.cfg.Points.At("peermem.found", u.id)
	if u.state == mapped && u.notify != nil {
		u.notify()
		u.core.cfg.Points.At("peermem.notified", u.id)
	}
	was := u.state
	switch {
	case was != mapped:
	case u.reg.client.InvalidateUnmaps:
		u.state = invalidated
	default:
		u.state = unmapped
		u.giveBack(t)
	}
	<-u.lock
}

// Rereg moves a registration to other memory, as mlx5 does: it releases the old one
// first, even if the new one then fails.
func (u *Umem) Rereg(t *p2p.Task, activated bool, addr, size uint64, writable bool, flags Flags) (*Umem, error) {
	core, dev := u.core, u.dev
	u.Release(t, activated)
	return core.Get(t, dev, addr, size, writable, flags)
}
