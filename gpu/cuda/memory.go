package cuda

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// allocations remembers what came from Alloc, Import and Register: Free must
// know how an address was made, and must not free what is not ours.
type allocations struct {
	mu    sync.Mutex
	made  map[gpu.Addr]allocation
	hosts map[uintptr]uint64 // registered ranges: address to length
}

type allocation struct {
	kind gpu.Kind
	size uint64 // mapped size of KindVirtual, else the size asked for
}

func newAllocations() allocations {
	return allocations{made: map[gpu.Addr]allocation{}, hosts: map[uintptr]uint64{}}
}

func (t *allocations) add(a gpu.Addr, x allocation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made[a] = x
}

// take removes and returns the allocation at a, so that of two concurrent
// Frees one fails.
func (t *allocations) take(a gpu.Addr) (allocation, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := t.made[a]
	delete(t.made, a)
	return x, ok
}

func (t *allocations) register(host uintptr, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hosts[host] = n
}

func (t *allocations) unregister(host uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.hosts, host)
}

// registered finds the registered range that an address lies in.
func (t *allocations) registered(a uintptr) (host uintptr, n uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for host, n := range t.hosts {
		if a >= host && uint64(a-host) < n {
			return host, n, true
		}
	}
	return 0, 0, false
}

// left lists what has not been freed.
func (t *allocations) left() (made []gpu.Addr, hosts []uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.made)), slices.Collect(maps.Keys(t.hosts))
}

// Alloc allocates memory of a kind. n 0 and flags that the kind does not have
// are ErrInvalidValue.
func (d *Device) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	s, call := d.allocator(k)
	if n == 0 {
		return 0, d.fail(s, gpu.ErrInvalidValue, "size 0", n)
	}
	if call == nil {
		return 0, d.fail(s, gpu.ErrInvalidValue, "memory of kind "+k.String()+" cannot be allocated", n)
	}
	return call(n, f)
}

// allocator is the driver function behind a kind, and how to call it.
func (d *Device) allocator(k gpu.Kind) (*symbol, func(uint64, gpu.Flags) (gpu.Addr, error)) {
	switch k {
	case gpu.KindDevice:
		return &d.symbols.cuMemAlloc, d.allocDevice
	case gpu.KindHost:
		return &d.symbols.cuMemHostAlloc, d.allocHost
	case gpu.KindManaged:
		return &d.symbols.cuMemAllocManaged, d.allocManaged
	case gpu.KindVirtual:
		return &d.symbols.cuMemCreate, d.allocVirtual
	}
	return &d.symbols.cuMemAlloc, nil
}

func (d *Device) allocDevice(n uint64, f gpu.Flags) (gpu.Addr, error) {
	s := &d.symbols.cuMemAlloc
	if f != 0 {
		return 0, d.fail(s, gpu.ErrInvalidValue, "device memory takes no flags", n)
	}
	a := new(gpu.Addr)
	if c := d.call(s, ref(a), uintptr(n)); c != gpu.Success {
		return 0, d.fail(s, c, "", n)
	}
	d.allocs.add(*a, allocation{gpu.KindDevice, n})
	return *a, nil
}

func (d *Device) allocHost(n uint64, f gpu.Flags) (gpu.Addr, error) {
	a := new(gpu.Addr)
	s := &d.symbols.cuMemHostAlloc
	if c := d.call(s, ref(a), uintptr(n), uintptr(f)); c != gpu.Success {
		return 0, d.fail(s, c, "", n, f)
	}
	d.allocs.add(*a, allocation{gpu.KindHost, n})
	return *a, nil
}

func (d *Device) allocManaged(n uint64, f gpu.Flags) (gpu.Addr, error) {
	if f == 0 {
		f = gpu.ManagedGlobal
	}
	a := new(gpu.Addr)
	s := &d.symbols.cuMemAllocManaged
	if c := d.call(s, ref(a), uintptr(n), uintptr(f)); c != gpu.Success {
		return 0, d.fail(s, c, "", n, f)
	}
	d.allocs.add(*a, allocation{gpu.KindManaged, n})
	return *a, nil
}

// Free frees an address that Alloc or Import of this Device returned; any
// other is ErrInvalidValue.
func (d *Device) Free(a gpu.Addr) error {
	if c := d.enter(); c != gpu.Success {
		return d.fail(&d.symbols.cuMemFree, c, "", a)
	}
	defer d.leave()
	return d.free(a)
}

// free is Free with the context current.
func (d *Device) free(a gpu.Addr) error {
	x, ok := d.allocs.take(a)
	s := &d.symbols.cuMemFree
	switch {
	case !ok:
		return d.fail(s, gpu.ErrInvalidValue, "not an allocation of this device", a)
	case x.kind == gpu.KindVirtual:
		return d.unmap(a, x.size)
	case x.kind == gpu.KindHost:
		s = &d.symbols.cuMemFreeHost
	}
	if c := s.call(uintptr(a)); c != gpu.Success {
		return d.fail(s, c, "", a)
	}
	return nil
}

// freeAll frees what is left when the Device is closed.
func (d *Device) freeAll() error {
	made, hosts := d.allocs.left()
	if len(made)+len(hosts) == 0 {
		return nil
	}
	if c := d.enterClosed(); c != gpu.Success {
		return d.fail(&d.symbols.cuCtxSetCurrent, c, "")
	}
	defer d.leave()
	var errs []error
	for _, a := range made {
		errs = append(errs, d.free(a))
	}
	for _, h := range hosts {
		s := &d.symbols.cuMemHostUnregister
		if c := s.call(h); c != gpu.Success {
			errs = append(errs, d.fail(s, c, "", gpu.Addr(h)))
		}
		d.allocs.unregister(h)
	}
	return errors.Join(errs...)
}

// Register pins host memory in place. The memory must not be Go's.
func (d *Device) Register(host uintptr, n uint64, f gpu.Flags) error {
	s := &d.symbols.cuMemHostRegister
	if c := d.call(s, host, uintptr(n), uintptr(f)); c != gpu.Success {
		return d.fail(s, c, "", gpu.Addr(host), n, f)
	}
	d.allocs.register(host, n)
	return nil
}

// Unregister undoes Register.
func (d *Device) Unregister(host uintptr) error {
	s := &d.symbols.cuMemHostUnregister
	if c := d.call(s, host); c != gpu.Success {
		return d.fail(s, c, "", gpu.Addr(host))
	}
	d.allocs.unregister(host)
	return nil
}

// DevicePointer is the GPU's address of pinned or registered host memory.
func (d *Device) DevicePointer(host uintptr) (gpu.Addr, error) {
	a := new(gpu.Addr)
	s := &d.symbols.cuMemHostGetDevicePointer
	if c := d.call(s, ref(a), host, 0); c != gpu.Success {
		return 0, d.fail(s, c, "", gpu.Addr(host))
	}
	return *a, nil
}

// IPCHandle is the CUipcMemHandle of the allocation that a lies in. Memory of
// other kinds than gpu.KindDevice has none.
func (d *Device) IPCHandle(a gpu.Addr) ([64]byte, error) {
	h := new([64]byte)
	s := &d.symbols.cuIpcGetMemHandle
	if c := d.call(s, ref(h), uintptr(a)); c != gpu.Success {
		return [64]byte{}, d.fail(s, c, "", a)
	}
	return *h, nil
}
