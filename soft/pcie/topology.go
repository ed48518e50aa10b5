package pcie

import (
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/soft/internal/addrspace"
	"github.com/culvert-io/culvert/soft/internal/freelist"
)

// Forwarding says between which root ports a host bridge forwards requests of devices.
type Forwarding uint8

const (
	ForwardNone Forwarding = iota
	ForwardOwn             // between its own root ports
	ForwardAll             // also to and from other bridges with ForwardAll
)

// A HostBridge connects a hierarchy to the processor.
type HostBridge struct {
	f       *Fabric
	forward Forwarding
}

// AddHostBridge adds a host bridge.
func (f *Fabric) AddHostBridge(fw Forwarding) *HostBridge { return &HostBridge{f, fw} }

// A Slot is a root port, or a downstream port of a switch.
type Slot struct {
	host *HostBridge
	sw   *Switch // nil for a root port
	acs  atomic.Bool

	full bool // has a switch; guarded by Fabric.mu
	used bool // has functions
}

// AddRootPort adds a root port.
func (h *HostBridge) AddRootPort(name string) (*Slot, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if err := h.f.claim(name, true); err != nil {
		return nil, err
	}
	return &Slot{host: h}, nil
}

// SetACS switches ACS redirection: with it requests between peers go to the root, and
// through the IOMMU, even if a switch connects them.
func (s *Slot) SetACS(redirect bool) { s.acs.Store(redirect) }

// above returns the slot that the switch of s is in, or nil.
func (s *Slot) above() *Slot {
	if s.sw == nil {
		return nil
	}
	return s.sw.slot
}

// A Switch has one upstream link, and slots.
type Switch struct {
	slot *Slot
	link link
}

// AddSwitch adds a switch. A slot has one switch or one device.
func (s *Slot) AddSwitch(name string) (*Switch, error) {
	f := s.host.f
	f.mu.Lock()
	defer f.mu.Unlock()
	sw := &Switch{slot: s}
	if err := f.claim(name, !s.full && !s.used); err != nil {
		return nil, err
	}
	s.full = true
	return sw, nil
}

// AddSlot adds a downstream port.
func (sw *Switch) AddSlot(name string) (*Slot, error) {
	f := sw.slot.host.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.claim(name, true); err != nil {
		return nil, err
	}
	return &Slot{host: sw.slot.host, sw: sw}, nil
}

// A Function is a device on the fabric, or one of several in a slot: a drive, NIC or
// engine does DMA through it.
type Function struct {
	f       *Fabric
	name    string
	slot    *Slot
	link    link
	removed atomic.Bool
	faults  atomic.Uint64
	unused  freelist.List[access]

	mu   sync.RWMutex
	iova addrspace.Space[uint64, *Mapping] // used under a translating IOMMU
}

// AddFunction adds a device. The name is its PCI address: "0000:65:00.0".
func (s *Slot) AddFunction(name string) (*Function, error) {
	f := s.host.f
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := &Function{f: f, name: name, slot: s, iova: addrspace.New[uint64, *Mapping](iovaBase, iovaEnd)}
	if err := f.claim(name, !s.full); err != nil {
		return nil, err
	}
	s.used = true
	return fn, nil
}

// Name returns the device's PCI address.
func (fn *Function) Name() string { return fn.name }

// Slot returns the slot that the device is in.
func (fn *Function) Slot() *Slot { return fn.slot }

// Fabric returns the fabric of the device.
func (fn *Function) Fabric() *Fabric { return fn.f }

// Unplug removes the device for good: its requests, and those to its windows, fail with
// [ErrRemoved]. Accesses in progress stay valid memory; their Release returns an error.
func (fn *Function) Unplug() { fn.removed.Store(true) }

// Removed reports whether the device was unplugged.
func (fn *Function) Removed() bool { return fn.removed.Load() }

// Faults returns the number of refused requests of the device.
func (fn *Function) Faults() uint64 { return fn.faults.Load() }
