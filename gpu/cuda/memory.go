package cuda

import (
	"cmp"
	"errors"
	"maps"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// allocations records the memory of Alloc, Import and Register. Free needs to know
// how an address was made, and must free no other memory.
type allocations struct {
	mu   sync.Mutex
	made map[gpu.Addr]allocation
}

type allocation struct {
	kind gpu.Kind
	size uint64 // mapped size of KindVirtual, else the requested size
}

func (t *allocations) add(a gpu.Addr, x allocation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made[a] = x
}

// take removes and returns the allocation at a, unless it is registered memory. Of
// two concurrent Frees, one fails.
func (t *allocations) take(a gpu.Addr) (allocation, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := t.made[a]
	if ok = ok && x.kind != gpu.KindRegistered; ok {
		delete(t.made, a)
	}
	return x, ok
}

func (t *allocations) remove(a gpu.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.made, a)
}

// registered finds the registered range that contains an address.
func (t *allocations) registered(host uintptr) (base gpu.Addr, n uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for base, x := range t.made {
		if a := gpu.Addr(host); x.kind == gpu.KindRegistered && a >= base && uint64(a-base) < x.size {
			return base, x.size, true
		}
	}
	return 0, 0, false
}

// left is the memory that was not freed.
func (t *allocations) left() map[gpu.Addr]allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.made)
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

// freeAll frees the memory that is left when the Device is closed.
func (d *Device) freeAll() error {
	left := d.allocs.left()
	if len(left) == 0 {
		return nil
	}
	if err := d.check(&d.symbols.cuCtxSetCurrent, d.enterClosed()); err != nil {
		return err
	}
	defer d.leave()
	var errs []error
	for a, x := range left {
		if x.kind != gpu.KindRegistered {
			errs = append(errs, d.free(a))
			continue
		}
		s := &d.symbols.cuMemHostUnregister
		errs = append(errs, d.check(s, s.call(uintptr(a)), a))
		d.allocs.remove(a)
	}
	return errors.Join(errs...)
}

// Register pins host memory in place. The memory must not be Go's.
func (d *Device) Register(host uintptr, n uint64, f gpu.Flags) error {
	s := &d.symbols.cuMemHostRegister
	if err := d.check(s, d.call(s, host, uintptr(n), uintptr(f)), gpu.Addr(host), n, f); err != nil {
		return err
	}
	d.allocs.add(gpu.Addr(host), allocation{gpu.KindRegistered, n})
	return nil
}

// Unregister undoes Register.
func (d *Device) Unregister(host uintptr) error {
	s := &d.symbols.cuMemHostUnregister
	if err := d.check(s, d.call(s, host), gpu.Addr(host)); err != nil {
		return err
	}
	d.allocs.remove(gpu.Addr(host))
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
