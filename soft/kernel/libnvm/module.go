package libnvm

import (
	"fmt"
	"slices"
	"sync"

	abi "github.com/culvert-io/culvert/internal/abi/libnvm"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/nvme/dma"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config says how the module is loaded.
type Config struct {
	RM *p2p.RM // nil for a module that was built without CUDA
	// Points are the sync points, may be nil: libnvm.mapped, libnvm.unmap,
	// libnvm.callback. The id is the address.
	Points *syncpoint.Points
}

// A Module is libnvm, loaded.
type Module struct {
	cfg Config
	os  *kernel.OS

	mu    sync.Mutex
	paths []string      // of the drives, by number
	maps  [2][]*mapping // of host memory, of device memory
}

// Indexes of Module.maps.
const (
	host = iota
	device
)

// A mapping is memory of the process, mapped for a controller.
type mapping struct {
	owner int // thread
	vaddr uint64
	m     *dma.Map
	lost  bool // its memory was freed; guarded by Module.mu
}

// New loads the module into an operating system.
func New(o *kernel.OS, cfg Config) *Module { return &Module{cfg: cfg, os: o} }

// Bind adds the device node of a drive: the first is /dev/libnvm0.
func (m *Module) Bind(d *nvme.Controller) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	path := fmt.Sprintf(abi.Path, len(m.paths))
	if err := m.os.Register(path, func() (kernel.File, error) { return &file{m, d}, nil }); err != nil {
		return fmt.Errorf("libnvm: %w", err)
	}
	m.paths = append(m.paths, path)
	return nil
}

// Maps returns the number of maps.
func (m *Module) Maps() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.maps[host]) + len(m.maps[device])
}

// Close unloads the module and unmaps all memory.
func (m *Module) Close() {
	for _, p := range m.paths {
		m.os.Unregister(p)
	}
	for _, kind := range []int{device, host} {
		for {
			m.mu.Lock()
			list := m.maps[kind]
			if len(list) == 0 {
				m.mu.Unlock()
				break
			}
			m.maps[kind] = list[1:]
			m.mu.Unlock()
			_ = list[0].m.Unmap() // freed memory is unmapped
		}
	}
}

// add adds a map, unless its memory was freed. The newest is found last.
func (m *Module) add(kind int, p *mapping) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !p.lost {
		m.maps[kind] = append(m.maps[kind], p)
	}
}

// lose is the free callback.
func (m *Module) lose(p *mapping) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.lost = true
	m.maps[device] = slices.DeleteFunc(m.maps[device], func(x *mapping) bool { return x == p })
}

// remove removes a map and reports whether it was in the list.
func (m *Module) remove(kind int, p *mapping) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.maps[kind], p)
	if i >= 0 {
		m.maps[kind] = slices.Delete(m.maps[kind], i, i+1)
	}
	return i >= 0
}

// take removes the map of a thread that an address belongs to, and returns it.
func (m *Module) take(owner int, vaddr uint64) *mapping {
	m.mu.Lock()
	defer m.mu.Unlock()
	for kind := range m.maps {
		i := slices.IndexFunc(m.maps[kind], func(p *mapping) bool {
			return p.owner == owner && (p.vaddr == vaddr&^(abi.HOST_PAGE_SIZE-1) || p.vaddr == vaddr&^(abi.GPU_PAGE_SIZE-1))
		})
		if i >= 0 {
			p := m.maps[kind][i]
			m.maps[kind] = slices.Delete(m.maps[kind], i, i+1)
			return p
		}
	}
	return nil
}
