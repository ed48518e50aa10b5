package softcuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// A device is a GPU with its primary context. Guarded by Driver.mu.
type device struct {
	num     int32
	info    gpu.Info
	primary *context // nil while refs is 0
	refs    int
	flags   uint32
}

// Info describes the device of the call.
func (c Call) Info() gpu.Info { return c.dev.info }

// DeviceGet is cuDeviceGet: a CUdevice is the ordinal.
func (d *Driver) DeviceGet(c Call, out cmem.Ptr) error { return cmem.Answer(out, c.dev.num) }

// DeviceGetCount is cuDeviceGetCount.
func (d *Driver) DeviceGetCount(_ Call, out cmem.Ptr) error {
	return cmem.Answer(out, int32(len(d.ready.Load().devices)))
}

// DeviceGetName is cuDeviceGetName, which truncates a long name.
func (d *Driver) DeviceGetName(c Call, out cmem.Ptr, n int32) error {
	if n <= 0 {
		return gpu.ErrInvalidValue
	}
	cmem.PutString(out, int(n), c.dev.info.Name)
	return nil
}

// DeviceGetUuid is cuDeviceGetUuid.
func (d *Driver) DeviceGetUuid(c Call, out cmem.Ptr) error { return cmem.Answer(out, c.dev.info.UUID) }

// DeviceTotalMem is cuDeviceTotalMem.
func (d *Driver) DeviceTotalMem(c Call, out cmem.Ptr) error {
	return cmem.Answer(out, c.dev.info.Memory)
}

// DeviceGetAttribute is cuDeviceGetAttribute.
func (d *Driver) DeviceGetAttribute(c Call, out cmem.Ptr, attr int32) error {
	v, err := d.Attribute(c, gpu.Attribute(attr))
	return cmem.Put(out, int32(v), err)
}

// Attribute returns an attribute of the call's device.
func (d *Driver) Attribute(c Call, a gpu.Attribute) (v int, err error) {
	if v, ok := fixedAttributes[a]; ok {
		return v, nil
	}
	if slices.Contains(lackingAttributes, a) {
		return 0, nil
	}
	if a == abi.AttrDMABufMmap {
		return d.mapsExports(c)
	}
	err = d.visit(c.dev.num, func(g gpu.Device) (err error) {
		v, err = g.Attribute(a)
		return err
	})
	return v, err
}

// mapsExports is DMA_BUF_MMAP_SUPPORTED: 1 if the device has dma-bufs, and the program an mmap
// that knows them.
func (d *Driver) mapsExports(c Call) (int, error) {
	card, err := d.card(memLocation{ID: c.dev.num})
	if err != nil || d.MapsExports == nil || !d.MapsExports() || !card.Mappable() {
		return 0, err
	}
	return d.Attribute(c, abi.AttrDMABuf)
}

// visit runs fn on a device, whether or not a context is current. The primary
// context is retained meanwhile.
func (d *Driver) visit(dev int32, fn func(gpu.Device) error) error {
	m, err := d.machine()
	if err != nil {
		return err
	}
	g, err := m.drv.Open(int(dev))
	if err != nil {
		return err
	}
	return errors.Join(fn(g), g.Close())
}

// DeviceGetPCIBusId is cuDeviceGetPCIBusId, which needs room for all of it.
func (d *Driver) DeviceGetPCIBusId(c Call, out cmem.Ptr, n int32) error {
	if int(n) <= len(c.dev.info.PCI) {
		return gpu.ErrInvalidValue
	}
	cmem.PutString(out, int(n), strings.ToUpper(c.dev.info.PCI))
	return nil
}

// DeviceGetByPCIBusId is cuDeviceGetByPCIBusId. Domain and function are
// optional.
func (d *Driver) DeviceGetByPCIBusId(_ Call, out, text cmem.Ptr) error {
	s, ok := cmem.String(text, 32)
	want, known := parsePCI(s)
	if !ok || !known {
		return gpu.ErrInvalidValue
	}
	for _, x := range d.ready.Load().devices {
		if have, _ := parsePCI(x.info.PCI); have == want {
			return cmem.Answer(out, x.num)
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
func (d *Driver) DeviceComputeCapability(c Call, major, minor cmem.Ptr) error {
	cmem.Store(major, int32(c.dev.info.Capability[0]))
	return cmem.Answer(minor, int32(c.dev.info.Capability[1]))
}

// DeviceCanAccessPeer is cuDeviceCanAccessPeer: software GPUs have no peers.
func (d *Driver) DeviceCanAccessPeer(_ Call, out cmem.Ptr, peer int32) error {
	_, err := d.device(peer)
	return cmem.Put(out, int32(0), err)
}
