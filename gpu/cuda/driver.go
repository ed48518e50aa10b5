package cuda

import (
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// A Driver is a loaded and initialized libcuda. It is never unloaded: the
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

// call calls s without a context.
func (d *Driver) call(s *symbol, args ...uintptr) gpu.Code { return s.call(args...) }

func (d *Driver) count() (int32, error) { return get[int32](d, &d.symbols.cuDeviceGetCount) }

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
	ctx, err := get[uintptr](d, &d.symbols.cuDevicePrimaryCtxRetain, dev)
	if err != nil {
		return nil, err
	}
	return newDevice(d, dev, info, ctx, true), nil
}

// device is the CUdevice of GPU i.
func (d *Driver) device(i int) (int32, error) {
	s := &d.symbols.cuDeviceGet
	if i != int(int32(i)) { // C would see another number
		return 0, d.fail(s, gpu.ErrInvalidDevice, "", i)
	}
	return get[int32](d, s, i)
}

func (d *Driver) attribute(dev int32, a gpu.Attribute) (int, error) {
	v, err := get[int32](d, &d.symbols.cuDeviceGetAttribute, a, dev)
	return int(v), err
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

	name, err := get[[256]byte](d, &d.symbols.cuDeviceGetName, 256, dev)
	if err != nil {
		return info, err
	}
	info.Name = cString(name[:])
	if info.UUID, err = get[gpu.UUID](d, &d.symbols.cuDeviceGetUuid, dev); err != nil {
		return info, err
	}
	info.Memory, err = get[uint64](d, &d.symbols.cuDeviceTotalMem, dev)
	return info, err
}
