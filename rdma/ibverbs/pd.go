package ibverbs

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/ibverbs"
	"github.com/culvert-io/culvert/rdma"
)

// A PD is struct ibv_pd.
type PD struct {
	dev *Device
	pd  uintptr

	mu      sync.Mutex
	objects int
	closed  bool
}

// Register implements rdma.PD.
func (p *PD) Register(m rdma.Memory, access rdma.Access) (rdma.MR, error) {
	r, err := p.register(m, access)
	if err != nil {
		return nil, &rdma.RegisterError{Provider: Name, Device: p.dev.info.Name, Memory: m, Access: access, Err: err}
	}
	return r, nil
}

func (p *PD) register(m rdma.Memory, access rdma.Access) (*MR, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	if err := access.Check(); err != nil {
		return nil, err
	}
	iova := m.Addr
	if access&rdma.ZeroBased != 0 {
		iova = m.Addr % pageSize // addresses in requests count from the start of its page
		access &^= rdma.ZeroBased
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("the protection domain is closed: %w", syscall.EINVAL)
	}
	mr, err := p.call(m, iova, access)
	if err != nil {
		return nil, err
	}
	p.objects++
	c := at[abi.MR](mr)
	return &MR{pd: p, mr: mr, mem: m, iova: iova, lkey: c.LKey, rkey: c.RKey}, nil
}

const pageSize = 4096

// call calls the function for the kind of memory. The address of GPU memory is an
// address: the kernel asks its peer memory clients for it.
func (p *PD) call(m rdma.Memory, iova uint64, access rdma.Access) (uintptr, error) {
	l := p.dev.lib
	switch {
	case m.File != nil && l.regDMABuf == 0:
		return 0, fmt.Errorf("%s has no ibv_reg_dmabuf_mr, rdma-core 34 has: %w", l.path, syscall.EOPNOTSUPP)
	case m.File != nil:
		defer runtime.KeepAlive(m.File)
		return object(l.regDMABuf, p.pd, uintptr(m.Offset), uintptr(m.Len), uintptr(iova), m.File.Fd(), uintptr(access))
	case l.regMRIova2 != 0:
		return object(l.regMRIova2, p.pd, uintptr(m.Addr), uintptr(m.Len), uintptr(iova), uintptr(access))
	case iova != m.Addr:
		return 0, fmt.Errorf("%s has no ibv_reg_mr_iova2, which zero-based memory needs: %w", l.path, syscall.EOPNOTSUPP)
	}
	return object(l.regMR, p.pd, uintptr(m.Addr), uintptr(m.Len), uintptr(access))
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
	if err := status(p.dev.lib.deallocPD, p.pd); err != nil {
		return fmt.Errorf("deallocate protection domain: %w", err)
	}
	p.closed = true
	p.dev.drop()
	return nil
}

// An MR is struct ibv_mr.
type MR struct {
	pd         *PD
	mr         uintptr
	mem        rdma.Memory // so that the garbage collector leaves it
	iova       uint64
	lkey, rkey uint32

	mu     sync.Mutex
	closed bool
}

// LKey implements rdma.MR.
func (r *MR) LKey() uint32 { return r.lkey }

// RKey implements rdma.MR.
func (r *MR) RKey() uint32 { return r.rkey }

// Addr implements rdma.MR.
func (r *MR) Addr() uint64 { return r.iova }

// Len implements rdma.MR.
func (r *MR) Len() uint64 { return r.mem.Len }

// Close implements rdma.MR.
func (r *MR) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("deregister: the region is closed: %w", syscall.EINVAL)
	}
	if err := status(r.pd.dev.lib.deregMR, r.mr); err != nil {
		return fmt.Errorf("deregister %d bytes at %#x: %w", r.mem.Len, r.mem.Addr, err)
	}
	r.closed = true
	r.pd.drop()
	return nil
}
