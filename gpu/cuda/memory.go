package cuda

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// allocations records the memory that came from Alloc, Import and Register.
// Free needs to know how an address was made, and must free no other memory.
type allocations struct {
	mu    sync.Mutex
	made  map[gpu.Addr]allocation
	hosts map[uintptr]uint64 // registered ranges: address to length
}

type allocation struct {
	kind gpu.Kind
	size uint64 // mapped size of KindVirtual, else the requested size
}

func newAllocations() allocations {
	return allocations{made: map[gpu.Addr]allocation{}, hosts: map[uintptr]uint64{}}
}

func (t *allocations) add(a gpu.Addr, x allocation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made[a] = x
}

// take removes and returns the allocation at a. Of two concurrent Frees, one
// fails.
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

// registered finds the registered range that contains an address.
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

// left lists the memory that was not freed.
func (t *allocations) left() (made []gpu.Addr, hosts []uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.made)), slices.Collect(maps.Keys(t.hosts))
}

// Alloc allocates memory of a kind. It fails with ErrInvalidValue if n is 0 or
// the kind does not have the flags.
func (d *Device) Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	s, args := &d.symbols.cuMemAlloc, []any{n}
	switch k {
	case gpu.KindDevice:
	case gpu.KindHost:
		s, args = &d.symbols.cuMemHostAlloc, []any{n, f}
	case gpu.KindManaged:
		s, args = &d.symbols.cuMemAllocManaged, []any{n, cmp.Or(f, gpu.ManagedGlobal)}
	case gpu.KindVirtual:
		s = &d.symbols.cuMemCreate
	default:
		return 0, d.fail(s, gpu.ErrInvalidValue, "memory of kind "+k.String()+" cannot be allocated", n)
	}
	switch {
	case n == 0:
		return 0, d.fail(s, gpu.ErrInvalidValue, "size 0", n)
	case f != 0 && k.OnDevice():
		return 0, d.fail(s, gpu.ErrInvalidValue, k.String()+" memory has no flags", n)
	case k == gpu.KindVirtual:
		return d.allocVirtual(n)
	}
	a, err := get[gpu.Addr](d, s, args...)
	if err == nil {
		d.allocs.add(a, allocation{k, n})
	}
	return a, err
}

// Free frees an address that Alloc or Import of this Device returned. For any
// other it fails with ErrInvalidValue.
func (d *Device) Free(a gpu.Addr) error {
	if err := d.check(&d.symbols.cuMemFree, d.enter(), a); err != nil {
		return err
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
	return d.check(s, s.call(uintptr(a)), a)
}

// freeAll frees what is left when the Device is closed.
func (d *Device) freeAll() error {
	made, hosts := d.allocs.left()
	if len(made)+len(hosts) == 0 {
		return nil
	}
	if err := d.check(&d.symbols.cuCtxSetCurrent, d.enterClosed()); err != nil {
		return err
	}
	defer d.leave()
	var errs []error
	for _, a := range made {
		errs = append(errs, d.free(a))
	}
	for _, h := range hosts {
		s := &d.symbols.cuMemHostUnregister
		errs = append(errs, d.check(s, s.call(h), gpu.Addr(h)))
		d.allocs.unregister(h)
	}
	return errors.Join(errs...)
}

// Register pins host memory in place. The memory must not be Go's.
func (d *Device) Register(host uintptr, n uint64, f gpu.Flags) error {
	s := &d.symbols.cuMemHostRegister
	if err := d.check(s, d.call(s, host, uintptr(n), uintptr(f)), gpu.Addr(host), n, f); err != nil {
		return err
	}
	d.allocs.register(host, n)
	return nil
}

// Unregister undoes Register.
func (d *Device) Unregister(host uintptr) error {
	s := &d.symbols.cuMemHostUnregister
	if err := d.check(s, d.call(s, host), gpu.Addr(host)); err != nil {
		return err
	}
	d.allocs.unregister(host)
	return nil
}

// DevicePointer is the GPU's address of pinned or registered host memory.
func (d *Device) DevicePointer(host uintptr) (gpu.Addr, error) {
	return get[gpu.Addr](d, &d.symbols.cuMemHostGetDevicePointer, gpu.Addr(host), 0)
}

// IPCHandle is the CUipcMemHandle of the allocation that contains a. Only
// memory of gpu.KindDevice has one.
func (d *Device) IPCHandle(a gpu.Addr) ([64]byte, error) {
	return get[[64]byte](d, &d.symbols.cuIpcGetMemHandle, a)
}
