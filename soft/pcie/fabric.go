package pcie

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/soft/internal/addrspace"
	"github.com/culvert-io/culvert/soft/internal/faults"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config describes a fabric. The zero value has no IOMMU.
type Config struct {
	IOMMU IOMMU
	// Points, if not nil, are passed by every DMA: "pcie.acquired" with the memory,
	// "pcie.release" before its release. A slow hook makes a slow fabric.
	Points *syncpoint.Points
}

// The address map. Bus addresses of the IOMMU are disjoint from physical ones, so that
// a mix-up is found.
const (
	hostBase = 1 << 32
	mmioBase = 1 << 44
	iovaBase = 1 << 46
	iovaEnd  = 1 << 47
	pageSize = 4 << 10
)

// A Fabric is the PCIe hierarchy of one machine and its host memory. It is
// safe for concurrent use.
type Fabric struct {
	cfg Config

	mu    sync.RWMutex
	names map[string]bool
	mmio  addrspace.Space[uint64, *Window]
	host  addrspace.Space[uint64, *Window]

	poison   faults.List[span]
	hostRead atomic.Uint64 // bytes that devices read from host memory
	hostWrit atomic.Uint64
	accesses atomic.Int64
	mappings atomic.Int64
}

// New makes a fabric without devices.
func New(cfg Config) *Fabric {
	return &Fabric{
		cfg:   cfg,
		names: map[string]bool{},
		mmio:  addrspace.New[uint64, *Window](mmioBase, iovaBase),
		host:  addrspace.New[uint64, *Window](hostBase, mmioBase),
	}
}

// Usage is what devices and modules use of a fabric.
type Usage struct {
	Windows  int // BARs and ranges of host memory
	Mappings int
	Accesses int
}

// Usage counts what is in use.
func (f *Fabric) Usage() Usage {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return Usage{f.mmio.Len() + f.host.Len(), int(f.mappings.Load()), int(f.accesses.Load())}
}

// claim reserves a unique name for something that goes into a slot, which must be
// free.
func (f *Fabric) claim(name string, free bool) error {
	switch {
	case name == "" || f.names[name]:
		return fmt.Errorf("pcie: %q: the name of a device or bridge must be unique and not empty", name)
	case !free:
		return fmt.Errorf("pcie: %s: slot is in use: it has one switch, or the functions of one device", name)
	}
	f.names[name] = true
	return nil
}
