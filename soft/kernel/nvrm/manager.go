package nvrm

import (
	"cmp"
	"fmt"
	"strconv"
	"sync"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/internal/addrspace"
	"github.com/culvert-io/culvert/soft/kernel"
)

// DefaultVersion is the driver release that is emulated.
const DefaultVersion = "580.159.04"

// A Manager is the resource manager of a machine.
type Manager struct {
	os      *kernel.OS
	drv     *softgpu.Driver
	version string
	cards   []*card

	mu         sync.Mutex // guards everything below, and the state of objects and files
	clients    map[nvrm.Handle]*client
	lastClient nvrm.Handle
	cuda       *client // owns the blocks of plain allocations
	mappings   int
}

// A card is a GPU on the bus.
type card struct {
	gpu      *softgpu.GPU
	minor    uint32
	id       uint32
	bus      uint8
	bar1     uint64 // bus address
	bar1Size uint64

	opens   int                                      // open device nodes
	windows addrspace.Space[uint64, *softgpu.Access] // of mappings; not with a static BAR1
}

// static reports whether all memory has a fixed address in BAR1.
func (c *card) static() bool { return c.bar1Size >= c.gpu.Info().Memory+staticStart }

const (
	clientBase  nvrm.Handle = 0xc1d00000
	cudaMemory  nvrm.Handle = 0x5c000000 // first handle of CUDA's memory objects
	bar1Base                = 0x20_0000_0000_00
	bar1Stride              = 1 << 40
	staticStart             = 0x20000000 // address of memory in a static BAR1
	vendorID                = 0x10de
)

// New adds the resource manager of a driver's cards to an operating system. version
// is the release that it reports; "" means DefaultVersion.
func New(os *kernel.OS, drv *softgpu.Driver, version string) (*Manager, error) {
	m := &Manager{os: os, drv: drv, version: cmp.Or(version, DefaultVersion), clients: map[nvrm.Handle]*client{}, lastClient: clientBase}
	m.cuda = m.newClient(nil)
	infos, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	for i := range infos {
		if err := m.addCard(i); err != nil {
			return nil, err
		}
	}
	if err := os.Register(nvrm.CtlPath, m.openCtl); err != nil {
		return nil, err
	}
	os.Mount("proc/driver/nvidia", m.proc())
	return m, nil
}

func (m *Manager) addCard(i int) error {
	g, err := m.drv.GPU(i)
	if err != nil {
		return err
	}
	var domain, bus, slot, function uint32
	pci := g.Info().PCI
	if _, err := fmt.Sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function); err != nil {
		return fmt.Errorf("software GPU %d: PCI address %q: %w", i, pci, err)
	}
	c := &card{
		gpu: g, minor: uint32(i), bus: uint8(bus), id: bus << 8,
		bar1: bar1Base + uint64(i)*bar1Stride, bar1Size: g.Model().BAR1,
	}
	c.windows = addrspace.New[uint64, *softgpu.Access](c.bar1, c.bar1+c.bar1Size)
	m.cards = append(m.cards, c)
	return m.os.Register(nvrm.DevicePrefix+strconv.Itoa(i), func() (kernel.File, error) { return m.openGPU(c), nil })
}

// proc returns /proc/driver/nvidia.
func (m *Manager) proc() kernel.Tree {
	t := kernel.Tree{"version": func() []byte {
		return fmt.Appendf(nil, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (software machine)\n", m.version)
	}}
	for _, c := range m.cards {
		info := c.gpu.Info()
		t["gpus/"+info.PCI+"/information"] = func() []byte {
			return fmt.Appendf(nil, "Model: \t\t %s\nGPU UUID: \t %v\nBus Location: \t %s\nDevice Minor: \t %d\n",
				info.Name, info.UUID, info.PCI, c.minor)
		}
	}
	return t
}

// Mappings returns the number of mappings, mapped into the process or not.
func (m *Manager) Mappings() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mappings
}

// Objects returns the number of clients and their objects, without CUDA's.
func (m *Manager) Objects() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.clients {
		if c != m.cuda {
			n += 1 + len(c.objects)
		}
	}
	return n
}

// Close frees all clients. It must come before the software GPU's Close.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.os.Unregister(nvrm.CtlPath)
	for _, c := range m.cards {
		m.os.Unregister(nvrm.DevicePrefix + strconv.FormatUint(uint64(c.minor), 10))
	}
	var err error
	for _, c := range m.clients {
		if e := m.freeClient(c); err == nil {
			err = e
		}
	}
	return err
}
