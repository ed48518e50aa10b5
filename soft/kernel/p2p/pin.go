package p2p

import (
	"cmp"
	"slices"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A state of a pin only increases.
type state uint8

const (
	getting  state = iota // pinned, but get_pages has not returned
	live                  //
	putting               // in put_pages
	revoking              // in the callback, or after it
	dead
)

// A pin is pinned pages.
type pin struct {
	rm         *RM
	id         uint64
	card       *aperture
	va         uint64
	access     *softgpu.Access // to the pages, while they are pinned
	persistent bool
	forced     bool // through BAR1
	free       func(*Task, *PageTable)
	cancel     func() bool // of the free callback
	table      *PageTable

	// Guarded by RM.mu.
	state   state
	revoked bool // ended by a revoke, not by put_pages
	revoker *Task
	maps    []*DMAMapping
	vmas    []*VMA
}

// GetPages pins pages of one allocation that t's process owns. free is called once if
// the memory is freed before PutPages: by the thread that frees it, possibly before
// GetPages returns. The table is valid until the callback returns.
func (rm *RM) GetPages(t *Task, va, n uint64, free func(*Task, *PageTable)) (*PageTable, error) {
	if free == nil {
		return nil, syscall.EINVAL
	}
	p, err := rm.newPin(t, va, n, func(p *pin) { p.free = free })
	if err != nil {
		return nil, err
	}
	g := p.card.gpu
	p.cancel, err = g.OnFree(gpu.Addr(va), n, func() { p.freed() })
	switch {
	case err != nil:
		p.abandon()
		return nil, syscall.EINVAL
	case !p.sameBlock():
		p.cancel()
		p.abandon()
		return nil, syscall.EINVAL
	case rm.fails("callback"):
		p.cancel()
		p.abandon()
		return nil, syscall.ENOMEM
	}
	rm.at("p2p.get.registered", p)
	rm.settle(p, live)
	rm.at("p2p.get.done", p)
	return p.table, nil
}

// sameBlock reports whether the addresses still are the acquired memory: it may have
// been freed and the addresses reused.
func (p *pin) sameBlock() bool {
	_, _, gen, err := p.card.gpu.Block(gpu.Addr(p.va))
	return err == nil && gen == p.access.Generation()
}

// GetPagesPersistent pins pages until they are put, even if their owner frees them.
func (rm *RM) GetPagesPersistent(t *Task, va, n uint64, flags uint32) (*PageTable, error) {
	force := flags == abi.NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING
	switch {
	case flags&^abi.NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING != 0:
		return nil, syscall.EINVAL
	case force && !rm.cfg.ForceBAR1:
		return nil, abi.ENOTSUPP
	}
	p, err := rm.newPin(t, va, n, func(p *pin) { p.persistent, p.forced = true, force })
	if err != nil {
		return nil, err
	}
	rm.settle(p, live)
	rm.at("p2p.get.done", p)
	return p.table, nil
}

// allocations are those of the kernel for a pin, in order.
var allocations = []string{"mem_info", "physical_addresses", "wreqmb_h", "rreqmb_h", "pages", "page"}

// newPin is the common part of both calls.
func (rm *RM) newPin(t *Task, va, n uint64, init func(*pin)) (*pin, error) {
	if va == 0 || n == 0 || va%PageSize != 0 || n%PageSize != 0 || va+n < va {
		return nil, syscall.EINVAL
	}
	if slices.ContainsFunc(allocations, rm.fails) {
		return nil, syscall.ENOMEM
	}
	card, access, err := rm.find(t, va, n)
	if err != nil {
		return nil, err
	}
	p := &pin{rm: rm, card: card, va: va, access: access}
	init(p)
	rm.mu.Lock()
	rm.lastID++
	p.id = rm.lastID
	rm.mu.Unlock()
	rm.at("p2p.get.acquired", p)
	pages, err := card.show(access)
	if err != nil {
		access.Release()
		return nil, err
	}
	p.table = &PageTable{
		Pages: pages, UUID: card.gpu.Info().UUID, pin: p,
	}
	rm.mu.Lock()
	rm.pins[p] = true
	rm.mu.Unlock()
	rm.at("p2p.get.pinned", p)
	return p, nil
}

// settle sets the state of a pin and wakes waiting threads.
func (rm *RM) settle(p *pin, s state) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	p.state = s
	if s == dead {
		delete(rm.pins, p)
	}
	rm.changed.Broadcast()
}

// abandon ends a pin whose get_pages fails.
func (p *pin) abandon() {
	p.card.hide(p.access)
	p.access.Release()
	p.rm.settle(p, dead)
}

// endPoints are the sync points in end.
type endPoints struct{ unmapped, hidden string }

// end removes the pin's mappings and pages. It waits for DMA in flight. It runs once
// per pin.
func (p *pin) end(points endPoints) {
	for {
		p.rm.mu.Lock()
		if len(p.maps) == 0 {
			break
		}
		m := p.maps[0]
		p.maps = p.maps[1:]
		p.rm.mu.Unlock()
		m.m.Unmap()
	}
	vmas := p.vmas
	p.vmas = nil
	p.rm.mu.Unlock()
	p.rm.at(points.unmapped, p)
	for _, v := range vmas {
		v.zap()
	}
	p.card.hide(p.access)
	p.rm.at(points.hidden, p)
	p.access.Release()
	p.rm.settle(p, dead)
}

// PutPages unpins. For a revoked table it waits for the revoke and returns nil.
// Unlike the driver, which loses the pin, it refuses an address that is not the
// pin's.
func (rm *RM) PutPages(t *Task, va uint64, table *PageTable) error {
	return rm.put(t, va, table, false)
}

// PutPagesPersistent unpins pages that GetPagesPersistent pinned.
func (rm *RM) PutPagesPersistent(t *Task, va uint64, table *PageTable, flags uint32) error {
	if table != nil && flags != 0 {
		return syscall.EINVAL
	}
	return rm.put(t, va, table, true)
}

func (rm *RM) put(t *Task, va uint64, table *PageTable, persistent bool) error {
	if table == nil {
		return nil
	}
	p := table.pin
	if p == nil || p.persistent != persistent || p.va != va || p.rm != rm {
		return syscall.EINVAL
	}
	rm.at("p2p.put", p)
	rm.mu.Lock()
	switch {
	case p.state == live:
		p.state = putting
		rm.mu.Unlock()
	case p.state == revoking && p.revoker == t:
		rm.mu.Unlock()
		return syscall.EDEADLK
	case p.revoked:
		for p.state != dead {
			rm.changed.Wait()
		}
		rm.mu.Unlock()
		rm.at("p2p.put.woken", p)
		return nil
	default: // already put
		rm.mu.Unlock()
		return syscall.EINVAL
	}
	if p.cancel != nil {
		p.cancel() // if that is too late, freed waits for us
	}
	rm.at("p2p.put.marked", p)
	p.end(endPoints{"p2p.put.unmapped", "p2p.put.hidden"})
	return nil
}

// freed runs when the owner frees the memory. The memory is not used any more when it
// returns.
func (p *pin) freed() {
	rm := p.rm
	rm.at("p2p.revoke", p)
	rm.mu.Lock()
	for p.state == getting {
		rm.changed.Wait()
	}
	if p.state != live {
		for p.state != dead {
			rm.changed.Wait()
		}
		rm.mu.Unlock()
		rm.at("p2p.revoke.woken", p)
		return
	}
	p.state, p.revoked = revoking, true
	p.revoker = &Task{}
	task := p.revoker
	rm.mu.Unlock()
	rm.at("p2p.revoke.begun", p)
	p.free(task, p.table)
	rm.at("p2p.revoke.called", p)
	p.end(endPoints{"p2p.revoke.unmapped", "p2p.revoke.hidden"})
	rm.at("p2p.revoke.done", p)
}

// Revoke ends all callback pins, as a GPU reset does, and returns how many there were. Their
// memory stays allocated.
func (rm *RM) Revoke() int {
	rm.mu.Lock()
	var list []*pin
	for p := range rm.pins {
		if !p.persistent && p.state == live {
			list = append(list, p)
		}
	}
	rm.mu.Unlock()
	slices.SortFunc(list, func(a, b *pin) int { return cmp.Compare(a.id, b.id) })
	n := 0
	for _, p := range list {
		if p.cancel() {
			p.freed()
			n++
		}
	}
	return n
}
