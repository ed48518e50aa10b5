package cuda

import (
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// A Driver is a loaded and initialised libcuda. It is never unloaded: the
// library has threads of its own.
type Driver struct {
	path    string
	symbols symbols
	imports sync.Map // addresses of imported memory, which Pointer needs
}

var _ gpu.Driver = (*Driver)(nil)

// Name is the CUDA version and the file of the library.
func (d *Driver) Name() string {
	return fmt.Sprintf("CUDA %s (%s)", versionText(d.Version()), d.path)
}

// Version is CUDA's: 13000 for 13.0.
func (d *Driver) Version() int {
	v := new(int32)
	d.symbols.cuDriverGetVersion.call(ref(v))
	return int(*v)
}

func (d *Driver) count() (int, error) {
	n := new(int32)
	s := &d.symbols.cuDeviceGetCount
	if c := s.call(ref(n)); c != gpu.Success {
		return 0, d.fail(s, c, "")
	}
	return int(*n), nil
}

// Devices describes the GPUs.
func (d *Driver) Devices() ([]gpu.Info, error) {
	n, err := d.count()
	if err != nil {
		return nil, err
	}
	infos := make([]gpu.Info, n)
	for i := range infos {
		dev, err := d.device(i)
		if err != nil {
			return nil, err
		}
		if infos[i], err = d.info(i, dev); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// Open retains the primary context of GPU i.
func (d *Driver) Open(i int) (gpu.Device, error) {
	dev, err := d.device(i)
	if err != nil {
		return nil, err
	}
	info, err := d.info(i, dev)
	if err != nil {
		return nil, err
	}
	ctx := new(uintptr)
	s := &d.symbols.cuDevicePrimaryCtxRetain
	if c := s.call(ref(ctx), uintptr(dev)); c != gpu.Success {
		return nil, d.fail(s, c, "", dev)
	}
	return newDevice(d, dev, info, *ctx, true), nil
}

// device is the CUdevice of GPU i.
func (d *Driver) device(i int) (int32, error) {
	dev := new(int32)
	s := &d.symbols.cuDeviceGet
	if i != int(int32(i)) { // C would see another number
		return 0, d.fail(s, gpu.ErrInvalidDevice, "", i)
	}
	if c := s.call(ref(dev), uintptr(i)); c != gpu.Success {
		return 0, d.fail(s, c, "", i)
	}
	return *dev, nil
}

func (d *Driver) attribute(dev int32, a gpu.Attribute) (int, error) {
	v := new(int32)
	s := &d.symbols.cuDeviceGetAttribute
	if c := s.call(ref(v), uintptr(a), uintptr(dev)); c != gpu.Success {
		return 0, d.fail(s, c, "", a, dev)
	}
	return int(*v), nil
}

func (d *Driver) info(i int, dev int32) (gpu.Info, error) {
	info := gpu.Info{Index: i}
	attributes := [...]gpu.Attribute{
		abi.AttrPCIDomainID, abi.AttrPCIBusID, abi.AttrPCIDeviceID, abi.AttrCapabilityMajor, abi.AttrCapabilityMinor,
		abi.AttrMultiprocessors, abi.AttrUnifiedAddressing,
	}
	var v [len(attributes)]int
	for k, a := range attributes {
		var err error
		if v[k], err = d.attribute(dev, a); err != nil {
			return info, err
		}
	}
	info.PCI = fmt.Sprintf("%04x:%02x:%02x.0", v[0], v[1], v[2])
	info.Capability = [2]int{v[3], v[4]}
	info.Multiprocs, info.UnifiedAddrs = v[5], v[6] != 0

	name := make([]byte, 256)
	s := &d.symbols.cuDeviceGetName
	if c := s.call(refBytes(name), uintptr(len(name)), uintptr(dev)); c != gpu.Success {
		return info, d.fail(s, c, "", dev)
	}
	info.Name = cString(name)
	uuid := new(gpu.UUID)
	s = &d.symbols.cuDeviceGetUuid
	if c := s.call(ref(uuid), uintptr(dev)); c != gpu.Success {
		return info, d.fail(s, c, "", dev)
	}
	info.UUID = *uuid
	total := new(uint64)
	s = &d.symbols.cuDeviceTotalMem
	if c := s.call(ref(total), uintptr(dev)); c != gpu.Success {
		return info, d.fail(s, c, "", dev)
	}
	info.Memory = *total
	return info, nil
}
