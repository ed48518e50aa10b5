package gdrdrv

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Pin is pinned GPU memory. It is safe for concurrent use.
type Pin struct {
	c          *Client
	handle     uint64
	addr, size uint64

	mu      sync.Mutex
	mapping *Mapping
	gone    bool
}

// Info describes a pin.
type Info struct {
	VA         uint64 // of the first page
	MappedSize uint64 // in whole pages
	PageSize   uint32
	Type       abi.MappingType
}

// Handle returns the module's number of the pin.
func (p *Pin) Handle() uint64 { return p.handle }

// enter locks a pin, unless it is unpinned.
func (p *Pin) enter(op string) error {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return p.fail(op, fs.ErrClosed)
	}
	return nil
}

func (p *Pin) fail(op string, err error) error {
	return fmt.Errorf("gdrdrv %s pin %d (%#x+%#x): %w", op, p.handle, p.addr, p.size, err)
}

// Info asks the module.
func (p *Pin) Info() (Info, error) {
	if err := p.enter("info of"); err != nil {
		return Info{}, err
	}
	defer p.mu.Unlock()
	q := abi.GetInfoParamsV2{Handle: p.handle}
	err := dev.Ioctl(p.c.node, abi.GDRDRV_IOC_GET_INFO_V2, &q)
	if errors.Is(err, syscall.ENOTTY) {
		return p.infoV1()
	}
	if err != nil {
		return Info{}, p.fail("info of", err)
	}
	return Info{q.VA, q.MappedSize, q.PageSize, q.MappingType}, nil
}

// infoV1 asks a module before 2.4.
func (p *Pin) infoV1() (Info, error) {
	q := abi.GetInfoParams{Handle: p.handle}
	if err := dev.Ioctl(p.c.node, abi.GDRDRV_IOC_GET_INFO, &q); err != nil {
		return Info{}, p.fail("info of", err)
	}
	i := Info{q.VA, q.MappedSize, q.PageSize, abi.GDR_MAPPING_TYPE_NONE}
	switch {
	case q.WCMapping != 0:
		i.Type = abi.GDR_MAPPING_TYPE_WC
	case q.Mapped != 0:
		i.Type = abi.GDR_MAPPING_TYPE_CACHING
	}
	return i, nil
}

// Revoked reports whether the owner freed the memory. The mapping then faults, and
// only Unpin is useful. A module that pins persistently never revokes.
func (p *Pin) Revoked() (bool, error) {
	if err := p.enter("callback flag of"); err != nil {
		return false, err
	}
	defer p.mu.Unlock()
	q := abi.GetCBFlagParams{Handle: p.handle}
	if err := dev.Ioctl(p.c.node, abi.GDRDRV_IOC_GET_CB_FLAG, &q); err != nil {
		return false, p.fail("callback flag of", err)
	}
	return q.Flag != 0, nil
}

// RequestType sets how the next mapping is cached. It returns EBUSY while the pin is
// mapped, EOPNOTSUPP if the platform does not support the type.
func (p *Pin) RequestType(t abi.MappingType) error {
	if err := p.enter("request a mapping type for"); err != nil {
		return err
	}
	defer p.mu.Unlock()
	q := abi.ReqMappingTypeParams{Handle: p.handle, MappingType: t}
	if err := dev.Ioctl(p.c.node, abi.GDRDRV_IOC_REQ_MAPPING_TYPE, &q); err != nil {
		return p.fail("request a mapping type for", err)
	}
	return nil
}

// Map maps the first n bytes. A pin has one mapping: a second returns EAGAIN.
func (p *Pin) Map(n, prot int) (*Mapping, error) {
	if err := p.enter("map"); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	if p.mapping != nil {
		return nil, p.fail("map", fmt.Errorf("already mapped: %w", syscall.EAGAIN))
	}
	if p.handle > math.MaxInt64/abi.HOST_PAGE {
		return nil, p.fail("map", fmt.Errorf("handle is not a page offset: %w", syscall.EOVERFLOW))
	}
	m, err := p.c.node.Mmap(int64(p.handle)*abi.HOST_PAGE, n, prot)
	if err != nil {
		if errors.Is(err, syscall.EINVAL) && p.addr%abi.GPU_PAGE_SIZE != 0 {
			err = fmt.Errorf("%w: pin does not begin on a GPU page", err)
		}
		return nil, p.fail("map", err)
	}
	p.mapping = &Mapping{Mapping: m, p: p}
	return p.mapping, nil
}

// A Mapping is pinned memory in the process's address space. After a revoke an access
// raises SIGBUS.
type Mapping struct {
	dev.Mapping
	p *Pin
}

// Unmap removes the mapping. A second call does nothing.
func (m *Mapping) Unmap() error {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	return m.p.unmap(m)
}

func (p *Pin) unmap(m *Mapping) error {
	if p.mapping != m {
		return nil
	}
	if err := m.Mapping.Unmap(); err != nil {
		return p.fail("unmap", err)
	}
	p.mapping = nil
	return nil
}

// Unpin unmaps and unpins the memory. A second call returns fs.ErrClosed. Memory that
// cannot be unmapped stays pinned, so that a stale mapping never shows memory of
// another owner.
func (p *Pin) Unpin() error {
	if err := p.enter("unpin"); err != nil {
		return err
	}
	defer p.mu.Unlock()
	if p.mapping != nil {
		if err := p.unmap(p.mapping); err != nil {
			return err
		}
	}
	p.gone = true
	p.c.pins.Forget(p)
	q := abi.UnpinBufferParams{Handle: p.handle}
	if err := dev.Ioctl(p.c.node, abi.GDRDRV_IOC_UNPIN_BUFFER, &q); err != nil {
		return p.fail("unpin", err)
	}
	return nil
}
