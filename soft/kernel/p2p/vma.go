package p2p

import (
	"slices"
	"syscall"

	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A VMA is pinned GPU memory in the process's address space. When the pin ends, an
// access raises SIGBUS, as on hardware.
type VMA struct {
	*softgpu.VMA
	pin *pin
}

// Mmap maps n bytes from off of a pin's pages. Both must be multiples of the system's
// page size.
func (rm *RM) Mmap(t *PageTable, off, n uint64, prot int) (*VMA, error) {
	if t == nil || t.pin == nil || t.pin.rm != rm {
		return nil, syscall.EINVAL
	}
	p := t.pin
	page := uint64(syscall.Getpagesize())
	if size := uint64(len(t.Pages)) * PageSize; n == 0 || off%page != 0 || n%page != 0 || off > size || n > size-off {
		return nil, syscall.EINVAL
	}
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if p.state != live {
		return nil, syscall.EINVAL
	}
	m, err := p.access.Mmap(off, n, prot)
	if err != nil {
		return nil, err
	}
	v := &VMA{m, p}
	p.vmas = append(p.vmas, v)
	return v, nil
}

// zap revokes the mapping. It cannot fail: the addresses are reserved.
func (v *VMA) zap() { _ = v.Revoke(int(v.pin.rm.empty.Fd())) }

// Zap revokes the mapping before its pin ends.
func (v *VMA) Zap() {
	v.zap()
	v.forget()
}

// forget removes the mapping from the pin. It must come after the memory is out of the
// mapping.
func (v *VMA) forget() {
	rm := v.pin.rm
	rm.mu.Lock()
	defer rm.mu.Unlock()
	v.pin.vmas = slices.DeleteFunc(v.pin.vmas, func(x *VMA) bool { return x == v })
}

// Unmap removes the mapping. A second call does nothing.
func (v *VMA) Unmap() error {
	if err := v.VMA.Unmap(); err != nil {
		return err
	}
	v.forget()
	return nil
}
