package nvrm

import (
	"os"
	"syscall"

	"github.com/culvert-io/culvert/soft/kernel"
)

// A registration links a file to a /dev/nvidiactl.
type registration struct{ ctl *ctlFile }

// register is NV_ESC_REGISTER_FD of the file self.
func (r *registration) register(m *Manager, self kernel.File, fd int) error {
	ctl, ok := m.os.File(fd).(*ctlFile)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !ok || r.ctl != nil || kernel.File(ctl) == self || ctl.ctl != nil {
		return syscall.EINVAL
	}
	r.ctl = ctl
	return nil
}

// A ctlFile is an open /dev/nvidiactl.
type ctlFile struct {
	registration
	m *Manager
}

func (m *Manager) openCtl() (kernel.File, error) { return &ctlFile{m: m}, nil }

// Mmap fails: it is for system memory, which is not emulated.
func (f *ctlFile) Mmap(int64, int, int) (kernel.Mapping, error) { return nil, syscall.EINVAL }

// Release frees the file's clients.
func (f *ctlFile) Release() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	for _, c := range f.m.clients {
		if c.owner == f {
			_ = f.m.freeClient(c) // a close reports nothing
		}
	}
}

// A gpuFile is an open device node of a GPU.
type gpuFile struct {
	registration
	m    *Manager
	card *card
	mp   *mapping // the one that it can map
}

func (m *Manager) openGPU(c *card) kernel.File {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.opens++
	return &gpuFile{m: m, card: c}
}

// Mmap maps the whole mapping that RM_MAP_MEMORY attached to the file.
func (f *gpuFile) Mmap(off int64, n, prot int) (kernel.Mapping, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	page := os.Getpagesize()
	switch {
	case n <= 0 || off != 0 || f.mp == nil || f.mp.gone:
		return nil, syscall.EINVAL
	case uint64(n+page-1)/uint64(page)*uint64(page) != f.mp.access.Len():
		return nil, syscall.ENXIO
	}
	v, err := f.mp.access.Mmap(0, f.mp.access.Len(), prot)
	if err != nil {
		return nil, err
	}
	f.mp.vmas = append(f.mp.vmas, v)
	return v, nil
}

func (f *gpuFile) Release() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.card.opens--
}
