package softcuda

import (
	"errors"
	"structs"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// Virtual memory: physical memory by handle, reserved addresses, and mappings of
// physical memory at them. A mapping can be used after MemSetAccess; adjacent
// mappings are one range.

// virtual is a process's virtual memory. Guarded by Driver.mu.
type virtual struct {
	physicals    *handle.Table[*physical]
	reservations map[gpu.Addr]reservation
	mappings     map[gpu.Addr]*mapping
}

// A physical is a CUmemGenericAllocationHandle.
type physical struct {
	id     handle.ID
	mem    *softgpu.Physical
	prop   allocationProp
	refs   int // handles that the program has
	mapped int
}

type reservation struct {
	size uint64
	card *softgpu.GPU
}

// A mapping is physical memory at an address.
type mapping struct {
	base   gpu.Addr
	phys   *physical
	access int32
	via    *softgpu.Device // while access is granted
}

// allocationProp is CUmemAllocationProp.
type allocationProp struct {
	_           structs.HostLayout
	Type        int32
	HandleTypes int32
	Location    memLocation
	Win32       cmem.Ptr
	Flags       [8]byte
}

// memLocation is CUmemLocation.
type memLocation struct {
	_        structs.HostLayout
	Type, ID int32
}

// accessDesc is CUmemAccessDesc.
type accessDesc struct {
	_        structs.HostLayout
	Location memLocation
	Flags    int32
}

const (
	allocationPinned = 1
	handlePosixFD    = 1

	accessNone      = 0
	accessRead      = 1
	accessReadWrite = 3
)

// card is the GPU at a location.
func (d *Driver) card(at memLocation) (*softgpu.GPU, error) {
	return d.ready.Load().drv.GPU(int(at.ID))
}

// MemGetAllocationGranularity is cuMemGetAllocationGranularity. It accepts
// properties that memory cannot have.
func (d *Driver) MemGetAllocationGranularity(_ Call, out, prop cmem.Ptr, option int32) error {
	if p := cmem.Load[allocationProp](prop); p.Location.Type == locationDevice {
		if _, err := d.card(p.Location); err != nil {
			return err
		}
	}
	if option != 0 && option != 1 {
		return gpu.ErrInvalidValue
	}
	return cmem.Answer(out, uint64(softgpu.Granularity))
}

// MemCreate is cuMemCreate.
func (d *Driver) MemCreate(_ Call, out cmem.Ptr, n uint64, prop cmem.Ptr, flags uint64) error {
	p := cmem.Load[allocationProp](prop)
	if p.Type != allocationPinned || p.Location.Type != locationDevice || p.HandleTypes&^handlePosixFD != 0 || flags != 0 {
		return gpu.ErrInvalidValue
	}
	card, err := d.card(p.Location)
	if err != nil {
		return err
	}
	mem, err := card.Create(n, p.HandleTypes&handlePosixFD != 0)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.retain(&physical{mem: mem, prop: p}, out)
}

// retain gives the program a handle of ph. Call with d.mu held.
func (d *Driver) retain(ph *physical, out cmem.Ptr) error {
	if ph.refs == 0 {
		id, ok := d.virtual.physicals.Add(ph)
		if !ok {
			return gpu.ErrOutOfMemory
		}
		ph.id = id
	}
	ph.refs++
	return cmem.Answer(out, ph.id)
}

// free frees memory without handles and mappings. Call with d.mu held.
func (ph *physical) free() {
	if ph.refs == 0 && ph.mapped == 0 {
		ph.mem.Release()
	}
}

// MemRelease is cuMemRelease.
func (d *Driver) MemRelease(_ Call, id handle.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ph, err := find(d.virtual.physicals, id, gpu.ErrInvalidValue)
	if err != nil {
		return err
	}
	if ph.refs--; ph.refs == 0 {
		d.virtual.physicals.Remove(id)
	}
	ph.free()
	return nil
}

// MemRetainAllocationHandle is cuMemRetainAllocationHandle.
func (d *Driver) MemRetainAllocationHandle(_ Call, out, addr cmem.Ptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.mappingAt(gpu.Addr(addr))
	if err != nil {
		return err
	}
	return d.retain(m.phys, out)
}

// MemGetAllocationPropertiesFromHandle is the call of that name.
func (d *Driver) MemGetAllocationPropertiesFromHandle(_ Call, out cmem.Ptr, id handle.ID) error {
	ph, err := find(d.virtual.physicals, id, gpu.ErrInvalidValue)
	if err != nil {
		return err
	}
	return cmem.Answer(out, ph.prop)
}

// MemAddressReserve is cuMemAddressReserve. It ignores the requested address,
// which CUDA allows. Addresses are those of the thread's GPU, or of the first.
func (d *Driver) MemAddressReserve(c Call, out cmem.Ptr, n, align uint64, _ gpu.Addr, flags uint64) error {
	if flags != 0 || align&(align-1) != 0 || align > softgpu.Granularity {
		return gpu.ErrInvalidValue
	}
	dev, _ := d.Current(c.Thread)
	card, err := d.card(memLocation{ID: dev})
	if err != nil {
		return err
	}
	a, err := card.Reserve(n)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.virtual.reservations[a] = reservation{n, card}
	d.mu.Unlock()
	return cmem.Answer(out, a)
}

// MemAddressFree is cuMemAddressFree, for a whole reservation without mappings.
func (d *Driver) MemAddressFree(_ Call, a gpu.Addr, n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.virtual.reservations[a]
	if !ok || r.size != n || d.overlaps(a, n) {
		return gpu.ErrInvalidValue
	}
	delete(d.virtual.reservations, a)
	r.card.Unreserve(a)
	return nil
}

// MemMap is cuMemMap, of all of the memory.
func (d *Driver) MemMap(_ Call, a gpu.Addr, n, off uint64, id handle.ID, flags uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ph, err := find(d.virtual.physicals, id, gpu.ErrInvalidValue)
	if err != nil {
		return err
	}
	if off != 0 || flags != 0 || n != ph.mem.Size() || a%softgpu.Granularity != 0 || !d.reserved(a, n) || d.overlaps(a, n) {
		return gpu.ErrInvalidValue
	}
	ph.mapped++
	d.virtual.mappings[a] = &mapping{base: a, phys: ph}
	return nil
}

func in(a, base gpu.Addr, n uint64) bool { return a >= base && uint64(a-base) < n }

func (m *mapping) size() uint64 { return m.phys.mem.Size() }

// The functions below are called with d.mu held.

func (d *Driver) mappingAt(a gpu.Addr) (*mapping, error) {
	for _, m := range d.virtual.mappings {
		if in(a, m.base, m.size()) {
			return m, nil
		}
	}
	return nil, gpu.ErrInvalidValue
}

func (d *Driver) reserved(a gpu.Addr, n uint64) bool {
	for base, r := range d.virtual.reservations {
		if in(a, base, r.size) && n <= r.size-uint64(a-base) {
			return true
		}
	}
	return false
}

func (d *Driver) overlaps(a gpu.Addr, n uint64) bool {
	for base, m := range d.virtual.mappings {
		if in(a, base, m.size()) || in(base, a, n) {
			return true
		}
	}
	return false
}

// whole returns the mappings that fill [a, a+n) without a gap.
func (d *Driver) whole(a gpu.Addr, n uint64) (list []*mapping, err error) {
	var sum uint64
	for at, m := range d.virtual.mappings {
		if in(at, a, n) {
			list = append(list, m)
			sum += m.size()
		}
	}
	if n == 0 || sum != n || d.virtual.mappings[a] == nil {
		return nil, gpu.ErrInvalidValue
	}
	return list, nil
}

// MemUnmap is cuMemUnmap, of whole mappings.
func (d *Driver) MemUnmap(_ Call, a gpu.Addr, n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, err := d.whole(a, n)
	for _, m := range list {
		err = errors.Join(err, m.deny())
		delete(d.virtual.mappings, m.base)
		m.phys.mapped--
		m.phys.free()
	}
	return err
}

// deny revokes access.
func (m *mapping) deny() error {
	if m.via == nil {
		return nil
	}
	err := errors.Join(m.via.Unmap(m.base), m.via.Close())
	m.via, m.access = nil, accessNone
	return err
}

// MemSetAccess is cuMemSetAccess, for whole mappings and for the GPU of the
// memory: there are no peers. Read access includes writing.
func (d *Driver) MemSetAccess(_ Call, a gpu.Addr, n uint64, desc cmem.Ptr, count uint64) error {
	if count != 1 {
		return gpu.ErrInvalidValue
	}
	want := cmem.Load[accessDesc](desc)
	if want.Flags != accessNone && want.Flags != accessRead && want.Flags != accessReadWrite || want.Location.Type != locationDevice {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list, err := d.whole(a, n)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.phys.prop.Location.ID != want.Location.ID {
			return gpu.ErrInvalidDevice
		}
		if err := d.grant(m, want.Flags); err != nil {
			return err
		}
	}
	return nil
}

// grant grants access, or revokes it.
func (d *Driver) grant(m *mapping, access int32) error {
	if access == accessNone {
		return m.deny()
	}
	if m.via == nil {
		g, err := d.ready.Load().drv.Open(int(m.phys.prop.Location.ID))
		if err != nil {
			return err
		}
		via := g.(*softgpu.Device)
		if err := via.Map(m.phys.mem, m.base); err != nil {
			return errors.Join(err, via.Close())
		}
		m.via = via
	}
	m.access = access
	return nil
}

// MemGetAccess is cuMemGetAccess.
func (d *Driver) MemGetAccess(_ Call, out, at cmem.Ptr, a gpu.Addr) error {
	loc := cmem.Load[memLocation](at)
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.mappingAt(a)
	if err != nil {
		return err
	}
	var access int32
	if loc.Type == locationDevice && loc.ID == m.phys.prop.Location.ID {
		access = m.access
	}
	return cmem.Answer(out, uint64(access))
}
