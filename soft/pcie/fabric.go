package pcie

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/soft/internal/faults"
	"github.com/culvert-io/culvert/soft/internal/gate"
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

	mu      sync.RWMutex
	regions []*region // sorted by base
	names   map[string]bool
	mmio    space
	host    space

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
		mmio:  newSpace(mmioBase, iovaBase),
		host:  newSpace(hostBase, mmioBase),
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
	return Usage{len(f.regions), int(f.mappings.Load()), int(f.accesses.Load())}
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

// A region is a range of physical addresses with something behind it.
type region struct {
	span
	target Target
	owner  *Function // nil for host memory
	gate   gate.Gate // of accesses
}

// find returns the region at a physical address, or nil.
func (f *Fabric) find(phys uint64) *region {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, _ := slices.BinarySearchFunc(f.regions, phys, func(r *region, a uint64) int {
		if r.base <= a {
			return -1
		}
		return 1
	})
	if i == 0 || phys-f.regions[i-1].base >= f.regions[i-1].size {
		return nil
	}
	return f.regions[i-1]
}

// add gives r addresses of s.
func (f *Fabric) add(r *region, s *space, align uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ok bool
	if r.base, ok = s.take(r.size, align); !ok {
		return false
	}
	i, _ := slices.BinarySearchFunc(f.regions, r.base, func(x *region, a uint64) int {
		if x.base < a {
			return -1
		}
		return 1
	})
	f.regions = slices.Insert(f.regions, i, r)
	return true
}

// remove waits for accesses to r and removes it from the address map.
func (f *Fabric) remove(r *region, s *space) {
	if !r.gate.Shut() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.regions = slices.DeleteFunc(f.regions, func(x *region) bool { return x == r })
	s.give(r.base)
}
