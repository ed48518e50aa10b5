package pcie

import (
	"sync"
	"sync/atomic"
)

// Forwarding says between which root ports a host bridge passes requests on
// from device to device.
type Forwarding uint8

const (
	ForwardNone Forwarding = iota
	ForwardOwn             // between its own root ports
	ForwardAll             // also to and from other bridges that do
)

// A HostBridge is where a hierarchy meets the processor.
type HostBridge struct {
	f       *Fabric
	forward Forwarding
}

// AddHostBridge gives the machine a host bridge.
func (f *Fabric) AddHostBridge(fw Forwarding) *HostBridge { return &HostBridge{f, fw} }

// A Slot is a port that devices are plugged in below: a root port, or a
// downstream port of a switch.
type Slot struct {
	host *HostBridge
	sw   *Switch // nil for a root port
	acs  atomic.Bool

	full bool // holds a switch; guarded by Fabric.mu
	used bool // holds functions
}

// AddRootPort gives the bridge a root port.
func (h *HostBridge) AddRootPort(name string) (*Slot, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if err := h.f.claim(name, nil, true); err != nil {
		return nil, err
	}
	return &Slot{host: h}, nil
}

// SetACS switches the redirection of requests between peers: with it they go up
// to the root, and through the IOMMU, even where a switch could send them
// straight on.
func (s *Slot) SetACS(redirect bool) { s.acs.Store(redirect) }

// above is the slot that the switch of s is plugged into, or nil.
func (s *Slot) above() *Slot {
	if s.sw == nil {
		return nil
	}
	return s.sw.slot
}

// A Switch has one link up and slots below.
type Switch struct {
	slot *Slot
	link link
}

// AddSwitch plugs a switch in. A slot holds one switch or one device.
func (s *Slot) AddSwitch(name string) (*Switch, error) {
	f := s.host.f
	f.mu.Lock()
	defer f.mu.Unlock()
	sw := &Switch{slot: s, link: link{name: name}}
	if err := f.claim(name, &sw.link, !s.full && !s.used); err != nil {
		return nil, err
	}
	s.full = true
	return sw, nil
}

// AddSlot gives the switch a downstream port.
func (sw *Switch) AddSlot(name string) (*Slot, error) {
	f := sw.slot.host.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.claim(name, nil, true); err != nil {
		return nil, err
	}
	return &Slot{host: sw.slot.host, sw: sw}, nil
}

// A Function is a device on the fabric, or one of several that share a slot.
// It is the [Port] of the drive, NIC or engine that it stands for.
type Function struct {
	f       *Fabric
	name    string
	slot    *Slot
	link    link
	removed atomic.Bool
	faults  atomic.Uint64
	shelf   shelf

	mu       sync.RWMutex
	mappings []*Mapping // sorted by address; only under a translating IOMMU
	iova     space
}

// AddFunction plugs a device in. The name is its PCI address:
// "0000:65:00.0".
func (s *Slot) AddFunction(name string) (*Function, error) {
	f := s.host.f
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := &Function{f: f, name: name, slot: s, link: link{name: name}, iova: newSpace(iovaBase, iovaEnd)}
	if err := f.claim(name, &fn.link, !s.full); err != nil {
		return nil, err
	}
	s.used = true
	return fn, nil
}

// Name is the device's PCI address.
func (fn *Function) Name() string { return fn.name }

// Slot returns the slot that the device is in.
func (fn *Function) Slot() *Slot { return fn.slot }

// Fabric is where the device is plugged in.
func (fn *Function) Fabric() *Fabric { return fn.f }

// Unplug takes the device off its link, as a hand would: from now on its own
// requests and those for its windows fail with [ErrRemoved]. Loans that are out
// stay valid memory; their Return says that the device is gone. There is no way
// back.
func (fn *Function) Unplug() { fn.removed.Store(true) }

// Removed reports whether the device was unplugged.
func (fn *Function) Removed() bool { return fn.removed.Load() }

// Faults is how many requests of the device were refused.
func (fn *Function) Faults() uint64 { return fn.faults.Load() }
