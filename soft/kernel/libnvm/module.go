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
	// First, if not nil, plugs in the drive of a machine that has none and calls Bind. It
	// runs when the first node is opened, which exists from the beginning.
	First func() error
	// Points are the sync points, may be nil: libnvm.mapped, libnvm.unmap,
	// libnvm.callback. The id is the address.
	Points *syncpoint.Points
}

// A Module is libnvm, loaded.
type Module struct {
	cfg Config
	os  *kernel.OS

	first sync.Mutex // held while the first drive is plugged in

	mu     sync.Mutex
	drives []*nvme.Controller // by number
	nodes  int                // registered
	maps   [2][]*mapping      // of host memory, of device memory
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
func New(o *kernel.OS, cfg Config) (*Module, error) {
	m := &Module{cfg: cfg, os: o}
	if cfg.First == nil {
		return m, nil
	}
	return m, m.addNode()
}

// Bind adds the device node of a drive: the first is /dev/libnvm0.
func (m *Module) Bind(d *nvme.Controller) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes == len(m.drives) {
		if err := m.addNode(); err != nil {
			return err
		}
	}
	m.drives = append(m.drives, d)
	return nil
}

// addNode registers the next node.
func (m *Module) addNode() error {
	i := m.nodes
	if err := m.os.Register(path(i), func() (kernel.File, error) { return m.open(i) }); err != nil {
		return fmt.Errorf("libnvm: %w", err)
	}
	m.nodes++
	return nil
}

func path(i int) string { return fmt.Sprintf(abi.Path, i) }

// open opens the node of drive i.
func (m *Module) open(i int) (kernel.File, error) {
	m.first.Lock()
	defer m.first.Unlock()
	d := m.drive(i)
	if d == nil {
		if err := m.cfg.First(); err != nil {
			return nil, err
		}
		d = m.drive(i)
	}
	return &file{m, d}, nil
}

// drive returns drive i, nil if it is not plugged in.
func (m *Module) drive(i int) *nvme.Controller {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i < len(m.drives) {
		return m.drives[i]
	}
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
	for i := range m.nodes {
		m.os.Unregister(path(i))
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
