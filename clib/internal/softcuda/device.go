package softcuda

import (
	"errors"
	"fmt"
	"strings"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/gpu"
)

// A device is a GPU with its primary context. Guarded by Driver.mu.
type device struct {
	info    gpu.Info
	primary *context // nil while nobody retains it
	refs    int
	flags   uint32
}

func (d *Driver) device(i int32) (*device, error) {
	m, err := d.machine()
	if err != nil {
		return nil, err
	}
	if i < 0 || int(i) >= len(m.devices) {
		return nil, gpu.ErrInvalidDevice
	}
	return m.devices[i], nil
}

// Count is the number of GPUs.
func (d *Driver) Count() (int, error) {
	m, err := d.machine()
	if err != nil {
		return 0, err
	}
	return len(m.devices), nil
}

// DeviceGet is cuDeviceGet: a CUdevice is the ordinal.
func (d *Driver) DeviceGet(_ *Thread, out cmem.Ptr, ordinal int32) error {
	if _, err := d.device(ordinal); err != nil {
		return err
	}
	cmem.Store(out, ordinal)
	return nil
}

// DeviceGetCount is cuDeviceGetCount.
func (d *Driver) DeviceGetCount(_ *Thread, out cmem.Ptr) error {
	n, err := d.Count()
	if err != nil {
		return err
	}
	cmem.Store(out, int32(n))
	return nil
}

// DeviceGetName is cuDeviceGetName, which cuts a long name off.
func (d *Driver) DeviceGetName(_ *Thread, out cmem.Ptr, n, dev int32) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	if n <= 0 {
		return gpu.ErrInvalidValue
	}
	cmem.PutString(out, int(n), x.info.Name)
	return nil
}

// DeviceGetUuid is cuDeviceGetUuid.
func (d *Driver) DeviceGetUuid(_ *Thread, out cmem.Ptr, dev int32) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	cmem.Store(out, x.info.UUID)
	return nil
}

// DeviceTotalMem is cuDeviceTotalMem.
func (d *Driver) DeviceTotalMem(_ *Thread, out cmem.Ptr, dev int32) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	cmem.Store(out, x.info.Memory)
	return nil
}

// DeviceGetAttribute is cuDeviceGetAttribute.
func (d *Driver) DeviceGetAttribute(_ *Thread, out cmem.Ptr, attr, dev int32) error {
	v, err := d.Attribute(dev, gpu.Attribute(attr))
	if err != nil {
		return err
	}
	cmem.Store(out, int32(v))
	return nil
}

// Attribute is an attribute of a device.
func (d *Driver) Attribute(dev int32, a gpu.Attribute) (int, error) {
	if _, err := d.device(dev); err != nil {
		return 0, err
	}
	if v, ok := fixedAttributes[a]; ok {
		return v, nil
	}
	var v int
	err := d.visit(dev, func(x gpu.Device) (err error) {
		v, err = x.Attribute(a)
		return err
	})
	return v, err
}

// fixedAttributes are those that package gpu has no use for but programs ask
// for: limits that every card of the modelled generations has, and features
// that this driver does not have.
var fixedAttributes = map[gpu.Attribute]int{
	2:   1024,      // MAX_BLOCK_DIM_X
	3:   1024,      // MAX_BLOCK_DIM_Y
	4:   64,        // MAX_BLOCK_DIM_Z
	5:   1<<31 - 1, // MAX_GRID_DIM_X
	6:   65535,     // MAX_GRID_DIM_Y
	7:   65535,     // MAX_GRID_DIM_Z
	8:   48 << 10,  // MAX_SHARED_MEMORY_PER_BLOCK
	9:   64 << 10,  // TOTAL_CONSTANT_MEMORY
	10:  32,        // WARP_SIZE
	11:  1<<31 - 1, // MAX_PITCH
	12:  65536,     // MAX_REGISTERS_PER_BLOCK
	15:  1,         // GPU_OVERLAP
	17:  0,         // KERNEL_EXEC_TIMEOUT
	20:  0,         // COMPUTE_MODE: default
	31:  1,         // CONCURRENT_KERNELS
	32:  1,         // ECC_ENABLED
	35:  0,         // TCC_DRIVER
	39:  2048,      // MAX_THREADS_PER_MULTIPROCESSOR
	78:  0,         // STREAM_PRIORITIES_SUPPORTED
	84:  0,         // MULTI_GPU_BOARD
	115: 0,         // MEMORY_POOLS_SUPPORTED
}

// visit runs fn on the device without anything having to be current. The
// primary context is retained for the visit alone.
func (d *Driver) visit(dev int32, fn func(gpu.Device) error) error {
	m, err := d.machine()
	if err != nil {
		return err
	}
	x, err := m.drv.Open(int(dev))
	if err != nil {
		return err
	}
	return errors.Join(fn(x), x.Close())
}

// DeviceGetPCIBusId is cuDeviceGetPCIBusId, which wants room for all of it.
func (d *Driver) DeviceGetPCIBusId(_ *Thread, out cmem.Ptr, n, dev int32) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	if int(n) <= len(x.info.PCI) {
		return gpu.ErrInvalidValue
	}
	cmem.PutString(out, int(n), strings.ToUpper(x.info.PCI))
	return nil
}

// DeviceGetByPCIBusId is cuDeviceGetByPCIBusId. Domain and function may be
// left out.
func (d *Driver) DeviceGetByPCIBusId(_ *Thread, out, text cmem.Ptr) error {
	m, err := d.machine()
	if err != nil {
		return err
	}
	s, ok := cmem.String(text, 32)
	want, known := parsePCI(s)
	if !ok || !known {
		return gpu.ErrInvalidValue
	}
	for i, x := range m.devices {
		if have, _ := parsePCI(x.info.PCI); have == want {
			cmem.Store(out, int32(i))
			return nil
		}
	}
	return gpu.ErrInvalidDevice
}

func parsePCI(s string) (at [4]int, ok bool) {
	for _, form := range []struct {
		format string
		fields []any
	}{
		{"%x:%x:%x.%x", []any{&at[0], &at[1], &at[2], &at[3]}},
		{"%x:%x:%x", []any{&at[0], &at[1], &at[2]}},
		{"%x:%x.%x", []any{&at[1], &at[2], &at[3]}},
		{"%x:%x", []any{&at[1], &at[2]}},
	} {
		at = [4]int{}
		if n, err := fmt.Sscanf(s, form.format, form.fields...); err == nil && n == len(form.fields) {
			return at, true
		}
	}
	return at, false
}

// DeviceComputeCapability is cuDeviceComputeCapability.
func (d *Driver) DeviceComputeCapability(_ *Thread, major, minor cmem.Ptr, dev int32) error {
	x, err := d.device(dev)
	if err != nil {
		return err
	}
	cmem.Store(major, int32(x.info.Capability[0]))
	cmem.Store(minor, int32(x.info.Capability[1]))
	return nil
}

// DeviceCanAccessPeer is cuDeviceCanAccessPeer: software GPUs have no peers.
func (d *Driver) DeviceCanAccessPeer(_ *Thread, out cmem.Ptr, dev, peer int32) error {
	for _, i := range []int32{dev, peer} {
		if _, err := d.device(i); err != nil {
			return err
		}
	}
	cmem.Store(out, int32(0))
	return nil
}
