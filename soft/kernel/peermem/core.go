package peermem

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config describes a core.
type Config struct {
	// Pin pins ordinary memory and maps it for a device; unpin undoes both. nil means
	// no ordinary memory.
	Pin func(dev *pcie.Function, addr, size uint64) (sg []Segment, unpin func(), err error)

	Points *syncpoint.Points
	// Fail, if not nil, is called at every allocation and can make it fail.
	Fail func(site string) bool
}

// A Core is the RDMA core, as far as peers need it. It is safe for concurrent use.
type Core struct {
	cfg Config

	mu      sync.Mutex
	changed sync.Cond // signalled when a use ends
	clients []*Registration
	lastID  uint64
}

// New returns a core without clients.
func New(cfg Config) *Core {
	c := &Core{cfg: cfg}
	c.changed.L = &c.mu
	return c
}

func (c *Core) fails(site string) bool { return c.cfg.Fail != nil && c.cfg.Fail(site) }

// A Registration is a registered client.
type Registration struct {
	core        *Core
	client      *Client
	invalidates bool

	// Guarded by Core.mu.
	uses       int
	nextTicket uint64
	tickets    map[uint64]*Umem
	stats      Stats
}

// Stats are the counters of /sys/kernel/mm/memory_peers.
type Stats struct {
	AllocMRs, DeallocMRs uint64
	RegPages, DeregPages uint64
	RegBytes, DeregBytes uint64
	FreeCallbacks        uint64
}

// Register adds a client. One that invalidates is used only for registrations that
// support it.
func (c *Core) Register(client *Client, invalidates bool) (*Registration, error) {
	if client == nil || client.Name == "" || client.Acquire == nil {
		return nil, fmt.Errorf("register peer memory client: name or Acquire is missing: %w", syscall.EINVAL)
	}
	if c.fails("client") {
		return nil, syscall.ENOMEM
	}
	r := &Registration{core: c, client: client, invalidates: invalidates, tickets: map[uint64]*Umem{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.clients, func(x *Registration) bool { return x.client.Name == client.Name }) {
		return nil, fmt.Errorf("peer memory client %s: %w", client.Name, syscall.EEXIST)
	}
	c.clients = append(c.clients, r)
	return r, nil
}

// Unregister removes the client and waits until no memory is registered with it. No
// callback runs after it.
func (r *Registration) Unregister() {
	c := r.core
	c.mu.Lock()
	c.clients = slices.DeleteFunc(c.clients, func(x *Registration) bool { return x == r })
	for r.uses > 0 {
		c.changed.Wait()
	}
	c.mu.Unlock()
	c.cfg.Points.At("peermem.unregister", 0)
}

// count changes the counters.
func (r *Registration) count(change func(*Stats)) {
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	change(&r.stats)
}

// Stats returns the client's counters.
func (r *Registration) Stats() Stats {
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	return r.stats
}

// Name returns the client's name.
func (r *Registration) Name() string { return r.client.Name }

// Tree returns the files in /sys/kernel/mm/memory_peers/<name>.
func (r *Registration) Tree() kernel.Tree {
	show := func(get func(Stats) uint64) func() []byte {
		return func() []byte { return append(strconv.AppendUint(nil, get(r.Stats()), 10), '\n') }
	}
	return kernel.Tree{
		"version":            func() []byte { return []byte(r.client.Version + "\n") },
		"num_alloc_mrs":      show(func(s Stats) uint64 { return s.AllocMRs }),
		"num_dealloc_mrs":    show(func(s Stats) uint64 { return s.DeallocMRs }),
		"num_reg_pages":      show(func(s Stats) uint64 { return s.RegPages }),
		"num_dereg_pages":    show(func(s Stats) uint64 { return s.DeregPages }),
		"num_reg_bytes":      show(func(s Stats) uint64 { return s.RegBytes }),
		"num_dereg_bytes":    show(func(s Stats) uint64 { return s.DeregBytes }),
		"num_free_callbacks": show(func(s Stats) uint64 { return s.FreeCallbacks }),
	}
}

// acquire returns the first client that claims a range.
func (c *Core) acquire(t *p2p.Task, addr, size uint64, flags Flags) (r *Registration, mem Memory) {
	for _, x := range c.candidates(flags) {
		if mem == nil {
			if mem = x.client.Acquire(t, addr, size); mem != nil {
				r = x // keeps the use that candidates counted
				continue
			}
		}
		x.drop()
	}
	return r, mem
}

// candidates returns the clients to ask, in order. Each is in use until it was asked,
// so that it is not unregistered.
func (c *Core) candidates(flags Flags) []*Registration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*Registration
	for _, r := range c.clients {
		if !r.invalidates || flags&Invalidate != 0 {
			r.uses++
			list = append(list, r)
		}
	}
	return list
}

// drop ends a use.
func (r *Registration) drop() {
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	r.uses--
	r.core.changed.Broadcast()
}

// noTicket is the ticket of registrations without invalidation.
const noTicket = 1<<32 - 1

// ticket assigns a number to u that was not in use recently.
func (r *Registration) ticket(u *Umem) {
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	for r.tickets[r.nextTicket] != nil {
		r.nextTicket = (r.nextTicket + 1) % noTicket
	}
	u.ticket = r.nextTicket
	r.nextTicket = (r.nextTicket + 1) % noTicket
	r.tickets[u.ticket] = u
}

// erase removes the ticket, and waits for invalidations that use it.
func (r *Registration) erase(u *Umem) {
	c := r.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.ticket == noTicket {
		return
	}
	delete(r.tickets, u.ticket)
	u.ticket = noTicket
	for u.invalidating > 0 {
		c.changed.Wait()
	}
}
