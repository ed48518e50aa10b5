package gdrcopy

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/dev/gdrdrv"
)

// module is the backend with GDRCopy's kernel module gdrdrv.
type module struct{ c *gdrdrv.Client }

func newModule(o dev.OS) (*module, error) {
	c, err := gdrdrv.Open(o)
	if err != nil {
		return nil, err
	}
	return &module{c}, nil
}

func (m *module) Describe() SessionInfo {
	v := m.c.Version()
	return SessionInfo{Backend: "gdrdrv " + v.String(), Module: [2]int{v.Major, v.Minor}, Persistent: m.c.Persistent()}
}

func (m *module) Close() error { return m.c.Close() }

// Pin pins the GPU pages around the bytes: the module maps only from the start of a
// page.
func (m *module) Pin(a gpu.Addr, n uint64) (pinned, error) {
	if n == 0 || uint64(a)+n < uint64(a) {
		return nil, fmt.Errorf("empty range, or past the end of the address space: %w", gpu.ErrInvalidValue)
	}
	p, off, err := m.c.PinAround(uint64(a), n)
	if err != nil {
		return nil, err
	}
	i, err := p.Info()
	if err != nil {
		return nil, errors.Join(err, p.Unpin())
	}
	info := Info{VA: gpu.Addr(i.VA), MappedSize: i.MappedSize, PageSize: i.PageSize}
	return &modulePin{Pin: p, off: off, n: n, info: info}, nil
}

type modulePin struct {
	*gdrdrv.Pin
	off, n uint64 // the requested bytes
	info   Info
}

// Info returns what the module last reported: the type is known once the memory is
// mapped.
func (p *modulePin) Info() Info { return p.info }

func (p *modulePin) Map() ([]byte, func() error, error) {
	m, err := p.Pin.Map(int(p.off+p.n), syscall.PROT_READ|syscall.PROT_WRITE)
	if err != nil {
		return nil, nil, err
	}
	i, err := p.Pin.Info()
	if err != nil {
		return nil, nil, errors.Join(err, m.Unmap())
	}
	p.info.Type = MappingType(i.Type)
	return dev.Bytes(m)[p.off : p.off+p.n], m.Unmap, nil
}
