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
// the one at the other. A mapping can be used once access was granted; mappings
// that follow each other are one range.

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
	dev    int32
	prop   allocationProp
	refs   int // handles given out
	mapped int
}

type reservation struct {
	size uint64
	card *softgpu.GPU
}

// A mapping is physical memory at an address.
type mapping struct {
	phys   *physical
	access int32
	via    *softgpu.Device // while access is granted
}

func newVirtual() virtual {
	return virtual{handle.NewTable[*physical](7), map[gpu.Addr]reservation{}, map[gpu.Addr]*mapping{}}
}

// allocationProp is CUmemAllocationProp.
type allocationProp struct {
	_            structs.HostLayout
	Type         int32
	HandleTypes  int32
	LocationType int32
	LocationID   int32
	Win32        cmem.Ptr
	Flags        [8]byte
}

// accessDesc is CUmemAccessDesc.
type accessDesc struct {
	_            structs.HostLayout
	LocationType int32
	LocationID   int32
	Flags        int32
}

const (
	allocationPinned = 1
	handlePosixFD    = 1

	accessNone      = 0
	accessRead      = 1
	accessReadWrite = 3
)

// card is the GPU that a property names.
func (d *Driver) card(p *allocationProp) (*softgpu.GPU, error) {
	if p.Type != allocationPinned || p.LocationType != locationDevice || p.HandleTypes&^handlePosixFD != 0 {
		return nil, gpu.ErrInvalidValue
	}
	m, err := d.machine()
	if err != nil {
		return nil, err
	}
	return m.drv.GPU(int(p.LocationID))
}

// MemGetAllocationGranularity is cuMemGetAllocationGranularity. It answers for
// properties that no memory could have, too.
func (d *Driver) MemGetAllocationGranularity(_ *Thread, out, prop cmem.Ptr, option int32) error {
	m, err := d.machine()
	if err != nil {
		return err
	}
	if p := cmem.Load[allocationProp](prop); p.LocationType == locationDevice {
		if _, err := m.drv.GPU(int(p.LocationID)); err != nil {
			return err
		}
	}
	if option != 0 && option != 1 {
		return gpu.ErrInvalidValue
	}
	cmem.Store(out, uint64(softgpu.Granularity))
	return nil
}

// MemCreate is cuMemCreate.
func (d *Driver) MemCreate(_ *Thread, out cmem.Ptr, n uint64, prop cmem.Ptr, flags uint64) error {
	p := cmem.Load[allocationProp](prop)
	card, err := d.card(&p)
	if err != nil {
		return err
	}
	if flags != 0 {
		return gpu.ErrInvalidValue
	}
	mem, err := card.Create(n)
	if err != nil {
		return err
	}
	ph := &physical{mem: mem, dev: p.LocationID, prop: p}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.give(ph, out)
}

// give hands a handle of ph out. Call with d.mu held.
func (d *Driver) give(ph *physical, out cmem.Ptr) error {
	if ph.refs == 0 {
		id, ok := d.virtual.physicals.Add(ph)
		if !ok {
			return gpu.ErrOutOfMemory
		}
		ph.id = id
	}
	ph.refs++
	cmem.Store(out, ph.id)
	return nil
}

// settle lets memory go that nobody holds. Call with d.mu held.
func (ph *physical) settle() {
	if ph.refs == 0 && ph.mapped == 0 {
		ph.mem.Release()
	}
}

func (d *Driver) physical(id handle.ID) (*physical, error) {
	if _, err := d.machine(); err != nil {
		return nil, err
	}
	ph, ok := d.virtual.physicals.Get(id)
	if !ok {
		return nil, gpu.ErrInvalidValue
	}
	return ph, nil
}

// MemRelease is cuMemRelease.
func (d *Driver) MemRelease(_ *Thread, id handle.ID) error {
	ph, err := d.physical(id)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ph.refs == 0 {
		return gpu.ErrInvalidValue
	}
	if ph.refs--; ph.refs == 0 {
		d.virtual.physicals.Remove(id)
	}
	ph.settle()
	return nil
}

// MemRetainAllocationHandle is cuMemRetainAllocationHandle.
func (d *Driver) MemRetainAllocationHandle(_ *Thread, out, addr cmem.Ptr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, m := range d.virtual.mappings {
		if in(gpu.Addr(addr), a, m.phys.mem.Size()) {
			return d.give(m.phys, out)
		}
	}
	return gpu.ErrInvalidValue
}

func in(a, base gpu.Addr, n uint64) bool { return a >= base && uint64(a-base) < n }

// MemGetAllocationPropertiesFromHandle is the call of that name.
func (d *Driver) MemGetAllocationPropertiesFromHandle(_ *Thread, out cmem.Ptr, id handle.ID) error {
	ph, err := d.physical(id)
	if err != nil {
		return err
	}
	cmem.Store(out, ph.prop)
	return nil
}

// MemAddressReserve is cuMemAddressReserve. The wish for an address is not
// granted, which CUDA allows. Addresses are those of the first GPU unless the
// thread works on another.
func (d *Driver) MemAddressReserve(t *Thread, out cmem.Ptr, n, align uint64, _ gpu.Addr, flags uint64) error {
	m, err := d.machine()
	if err != nil {
		return err
	}
	if flags != 0 || align&(align-1) != 0 || align > softgpu.Granularity {
		return gpu.ErrInvalidValue
	}
	dev, _ := d.Current(t)
	card, err := m.drv.GPU(int(dev))
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
	cmem.Store(out, a)
	return nil
}

// MemAddressFree is cuMemAddressFree, for a whole reservation in which nothing
// is mapped.
func (d *Driver) MemAddressFree(_ *Thread, a gpu.Addr, n uint64) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.virtual.reservations[a]
	if !ok || r.size != n || len(d.mapped(a, n)) > 0 {
		return gpu.ErrInvalidValue
	}
	delete(d.virtual.reservations, a)
	r.card.Unreserve(a, n)
	return nil
}

// mapped are the addresses of the mappings that begin in [a, a+n). Call with
// d.mu held.
func (d *Driver) mapped(a gpu.Addr, n uint64) (list []gpu.Addr) {
	for at := range d.virtual.mappings {
		if in(at, a, n) {
			list = append(list, at)
		}
	}
	return list
}

// MemMap is cuMemMap, of all of the memory.
func (d *Driver) MemMap(_ *Thread, a gpu.Addr, n, off uint64, id handle.ID, flags uint64) error {
	ph, err := d.physical(id)
	if err != nil {
		return err
	}
	if off != 0 || flags != 0 || n != ph.mem.Size() || a%softgpu.Granularity != 0 {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.reserved(a, n) || d.overlaps(a, n) {
		return gpu.ErrInvalidValue
	}
	ph.mapped++
	d.virtual.mappings[a] = &mapping{phys: ph}
	return nil
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
		if in(a, base, m.phys.mem.Size()) || in(base, a, n) {
			return true
		}
	}
	return false
}

// whole are the mappings that make up [a, a+n) without a gap. Call with d.mu
// held.
func (d *Driver) whole(a gpu.Addr, n uint64) ([]gpu.Addr, error) {
	list := d.mapped(a, n)
	var sum uint64
	for _, at := range list {
		sum += d.virtual.mappings[at].phys.mem.Size()
	}
	if n == 0 || sum != n || d.virtual.mappings[a] == nil {
		return nil, gpu.ErrInvalidValue
	}
	return list, nil
}

// MemUnmap is cuMemUnmap, of whole mappings.
func (d *Driver) MemUnmap(_ *Thread, a gpu.Addr, n uint64) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list, err := d.whole(a, n)
	if err != nil {
		return err
	}
	for _, at := range list {
		m := d.virtual.mappings[at]
		err = errors.Join(err, m.deny(at))
		delete(d.virtual.mappings, at)
		m.phys.mapped--
		m.phys.settle()
	}
	return err
}

// deny takes access away.
func (m *mapping) deny(a gpu.Addr) error {
	if m.via == nil {
		return nil
	}
	err := m.via.Unmap(a)
	err = errors.Join(err, m.via.Close())
	m.via, m.access = nil, accessNone
	return err
}

// MemSetAccess is cuMemSetAccess, for whole mappings and for the GPU that has
// the memory: there are no peers. Reading alone is not told from writing.
func (d *Driver) MemSetAccess(_ *Thread, a gpu.Addr, n uint64, desc cmem.Ptr, count uint64) error {
	m, err := d.machine()
	if err != nil {
		return err
	}
	if count != 1 {
		return gpu.ErrInvalidValue
	}
	want := cmem.Load[accessDesc](desc)
	if want.Flags != accessNone && want.Flags != accessRead && want.Flags != accessReadWrite || want.LocationType != locationDevice {
		return gpu.ErrInvalidValue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list, err := d.whole(a, n)
	if err != nil {
		return err
	}
	for _, at := range list {
		mp := d.virtual.mappings[at]
		if mp.phys.dev != want.LocationID {
			return gpu.ErrInvalidDevice
		}
		if err := mp.grant(m, at, want.Flags); err != nil {
			return err
		}
	}
	return nil
}

// grant gives access, or takes it away.
func (m *mapping) grant(ma *machine, a gpu.Addr, access int32) error {
	if access == accessNone {
		return m.deny(a)
	}
	if m.via == nil {
		x, err := ma.drv.Open(int(m.phys.dev))
		if err != nil {
			return err
		}
		via := x.(*softgpu.Device)
		if err := via.Map(m.phys.mem, a); err != nil {
			return errors.Join(err, via.Close())
		}
		m.via = via
	}
	m.access = access
	return nil
}

// MemGetAccess is cuMemGetAccess.
func (d *Driver) MemGetAccess(_ *Thread, out, location cmem.Ptr, a gpu.Addr) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	const pair = 4
	kind, id := cmem.Load[int32](location), cmem.Load[int32](location+pair)
	d.mu.Lock()
	defer d.mu.Unlock()
	for base, m := range d.virtual.mappings {
		if !in(a, base, m.phys.mem.Size()) {
			continue
		}
		var access int32
		if kind == locationDevice && id == m.phys.dev {
			access = m.access
		}
		cmem.Store(out, uint64(access))
		return nil
	}
	return gpu.ErrInvalidValue
}
