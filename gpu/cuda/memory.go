package cuda

import (
	"cmp"
	"errors"
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// allocations records the memory of Alloc and Import, and registered host memory.
// Free needs to know how an address was made, and must free no other memory.
type allocations struct {
	made  sync.Map // gpu.Addr to allocation
	hosts sync.Map // address of registered memory (uintptr) to its size (uint64)
}

type allocation struct {
	kind gpu.Kind
	size uint64 // mapped size of KindVirtual, else the requested size
}

// registered finds the registered range that contains an address.
func (t *allocations) registered(a uintptr) (host uintptr, n uint64, ok bool) {
	t.hosts.Range(func(k, v any) bool {
		host, n = k.(uintptr), v.(uint64)
		ok = a >= host && uint64(a-host) < n
		return !ok
	})
	return host, n, ok
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
		d.allocs.made.Store(a, allocation{k, n})
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
	v, _ := d.allocs.made.LoadAndDelete(a) // of two concurrent Frees, one fails
	x, ok := v.(allocation)
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

// freeAll frees and unregisters the memory that is left when the Device is closed.
func (d *Device) freeAll() (err error) {
	if empty(&d.allocs.made) && empty(&d.allocs.hosts) {
		return nil // without a call: the context may be destroyed
	}
	if err := d.check(&d.symbols.cuCtxSetCurrent, d.enterClosed()); err != nil {
		return err
	}
	defer d.leave()
	d.allocs.made.Range(func(a, _ any) bool {
		err = errors.Join(err, d.free(a.(gpu.Addr)))
		return true
	})
	d.allocs.hosts.Range(func(h, _ any) bool {
		s := &d.symbols.cuMemHostUnregister
		err = errors.Join(err, d.check(s, s.call(h.(uintptr)), gpu.Addr(h.(uintptr))))
		d.allocs.hosts.Delete(h)
		return true
	})
	return err
}

func empty(m *sync.Map) bool {
	empty := true
	m.Range(func(_, _ any) bool { empty = false; return false })
	return empty
}

// Register pins host memory in place. The memory must not be Go's.
func (d *Device) Register(host uintptr, n uint64, f gpu.Flags) error {
	s := &d.symbols.cuMemHostRegister
	if err := d.check(s, d.call(s, host, uintptr(n), uintptr(f)), gpu.Addr(host), n, f); err != nil {
		return err
	}
	d.allocs.hosts.Store(host, n)
	return nil
}

// Unregister undoes Register.
func (d *Device) Unregister(host uintptr) error {
	s := &d.symbols.cuMemHostUnregister
	if err := d.check(s, d.call(s, host), gpu.Addr(host)); err != nil {
		return err
	}
	d.allocs.hosts.Delete(host)
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
