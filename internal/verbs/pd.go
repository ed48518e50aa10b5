package verbs

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/rdma"
)

// A PD is a protection domain: an rdma.PD.
type PD struct {
	dev *Device

	mu      sync.Mutex
	closed  bool
	objects int
}

// Register implements rdma.PD.
func (p *PD) Register(m rdma.Memory, access rdma.Access) (rdma.MR, error) {
	r, err := p.register(m, access)
	if err != nil {
		return nil, &rdma.RegisterError{Provider: p.dev.cfg.Provider, Device: p.dev.cfg.Info.Name, Memory: m, Access: access, Err: err}
	}
	return r, nil
}

func (p *PD) register(m rdma.Memory, access rdma.Access) (*Region, error) {
	if err := errors.Join(m.Check(), access.Check()); err != nil {
		return nil, err
	}
	if access&rdma.OnDemand != 0 {
		return nil, fmt.Errorf("on-demand paging is not supported: %w", syscall.EOPNOTSUPP)
	}
	r := &Region{pd: p, addr: m.Addr, len: m.Len, access: access}
	if access&rdma.ZeroBased != 0 {
		r.addr = 0
	}
	return r, p.enter(r, func() (Backing, error) { return p.dev.cfg.Register(m, access, r.Revoke) })
}

// Map makes a region of memory that the caller has mapped for the device, as kernel
// modules do (ib_map_mr_sg). It begins at addr in work requests. The region closes b.
func (p *PD) Map(b Backing, addr, n uint64, access rdma.Access) (*Region, error) {
	r := &Region{pd: p, addr: addr, len: n, access: access}
	if err := p.enter(r, func() (Backing, error) { return b, access.Check() }); err != nil {
		return nil, err
	}
	return r, nil
}

// enter gives a region its backing and its key. The memory may be revoked before the region
// is usable.
func (p *PD) enter(r *Region, register func() (Backing, error)) (err error) {
	if err := p.hold(); err != nil {
		return err
	}
	if r.backing, err = register(); err != nil {
		p.drop()
		return err
	}
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	r.key = newKey(d.regions, 32)
	d.regions[r.key] = r
	return nil
}

// forget removes a region that was closed.
func (p *PD) forget(r *Region) {
	d := p.dev
	d.mu.Lock()
	delete(d.regions, r.key)
	d.mu.Unlock()
	p.drop()
}

func (p *PD) hold() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("the protection domain is closed: %w", syscall.EINVAL)
	}
	p.objects++
	return nil
}

func (p *PD) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects--
}

// Close implements rdma.PD.
func (p *PD) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return fmt.Errorf("deallocate protection domain: it is closed: %w", syscall.EINVAL)
	case p.objects > 0:
		return fmt.Errorf("deallocate protection domain: it has %d regions and queue pairs: %w", p.objects, syscall.EBUSY)
	}
	p.closed = true
	p.dev.drop()
	return nil
}
