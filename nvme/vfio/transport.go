package vfio

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/vfio"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/internal/mmio"
)

const pageSize = 4096

// A Config has the optional abilities of a transport.
type Config struct {
	// View maps GPU memory into the process, through BAR1, so that the drive's
	// DMA can go there. Without it GPU memory cannot be mapped.
	View func(gpu.Span) (mem []byte, release func() error, err error)
}

// A Transport is a controller bound to vfio-pci.
type Transport struct {
	registers
	pci       string
	cfg       Config
	container *os.File
	group     *os.File
	device    *os.File
	info      abi.DeviceInfo
	bar       dev.Mapping
	irqs      irqs

	mu    sync.Mutex
	iovas *iovas
	gone  bool
}

// registers is embedded unexported, so that users do not see an internal type.
type registers = mmio.Registers

var _ nvme.Transport = (*Transport)(nil)

// Open opens the drive at a PCI address. It must be bound to vfio-pci.
func Open(pci string, cfg Config) (t *Transport, err error) {
	t = &Transport{pci: pci, cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("vfio %s: %w", pci, err), t.Close())
		}
	}()
	n, err := groupOf(pci)
	if err != nil {
		return t, err
	}
	if err := t.openGroup(n); err != nil {
		return t, err
	}
	if err := t.openDevice(); err != nil {
		return t, err
	}
	return t, t.enable()
}

// openGroup opens the drive's IOMMU group and puts it into a new container.
func (t *Transport) openGroup(n string) (err error) {
	if t.container, err = os.OpenFile("/dev/vfio/vfio", os.O_RDWR, 0); err != nil {
		return fmt.Errorf("%w (fix: modprobe vfio-pci)", err)
	}
	if v, err := ioctl(t.container, abi.VFIO_GET_API_VERSION, 0); err != nil || v != abi.VFIO_API_VERSION {
		return fmt.Errorf("vfio has API version %d, want %d: %w", v, abi.VFIO_API_VERSION, errors.Join(err, errors.ErrUnsupported))
	}
	if ok, err := ioctl(t.container, abi.VFIO_CHECK_EXTENSION, abi.VFIO_TYPE1v2_IOMMU); err != nil || ok == 0 {
		return fmt.Errorf("no type 1 IOMMU (fix: modprobe vfio_iommu_type1): %w", errors.Join(err, errors.ErrUnsupported))
	}
	if t.group, err = os.OpenFile("/dev/vfio/"+n, os.O_RDWR, 0); err != nil {
		return fmt.Errorf("%w (busy: another program uses a drive of this group)", err)
	}
	status := abi.GroupStatus{Argsz: sizeOf[abi.GroupStatus]()}
	if err := ioctlOn(t.group, abi.VFIO_GROUP_GET_STATUS, &status); err != nil {
		return err
	}
	if status.Flags&abi.VFIO_GROUP_FLAGS_VIABLE == 0 {
		return fmt.Errorf("IOMMU group %s is not viable: all its devices must be bound to vfio-pci (%s)", n, members(n))
	}
	if err := setContainer(t.group, t.container); err != nil {
		return err
	}
	if _, err := ioctl(t.container, abi.VFIO_SET_IOMMU, abi.VFIO_TYPE1v2_IOMMU); err != nil {
		return err
	}
	ranges, err := iovaRanges(t.container)
	if err != nil {
		return err
	}
	t.iovas = newIOVAs(ranges)
	return nil
}

// openDevice opens the drive and maps its registers.
func (t *Transport) openDevice() error {
	fd, err := deviceFD(t.group, t.pci)
	// EAGAIN: the kernel is still resetting the device.
	for range 100 {
		if !errors.Is(err, unix.EAGAIN) {
			break
		}
		time.Sleep(20 * time.Millisecond)
		fd, err = deviceFD(t.group, t.pci)
	}
	if err != nil {
		return err
	}
	t.device = os.NewFile(uintptr(fd), t.pci)
	t.info = abi.DeviceInfo{Argsz: sizeOf[abi.DeviceInfo]()}
	if err := ioctlOn(t.device, abi.VFIO_DEVICE_GET_INFO, &t.info); err != nil {
		return err
	}
	if t.info.Flags&abi.VFIO_DEVICE_FLAGS_PCI == 0 {
		return fmt.Errorf("not a PCI device: flags %#x", t.info.Flags)
	}
	t.bar, err = t.mapRegion(abi.VFIO_PCI_BAR0_REGION_INDEX)
	if err != nil {
		return err
	}
	t.registers = mmio.Of(t.bar)
	return nil
}

// region describes a region of the device.
func (t *Transport) region(index uint32) (abi.RegionInfo, error) {
	r := abi.RegionInfo{Argsz: sizeOf[abi.RegionInfo](), Index: index}
	err := ioctlOn(t.device, abi.VFIO_DEVICE_GET_REGION_INFO, &r)
	return r, err
}

// mapRegion maps a BAR of the device into the process.
func (t *Transport) mapRegion(index uint32) (dev.Mapping, error) {
	r, err := t.region(index)
	if err != nil {
		return nil, err
	}
	if r.Flags&abi.VFIO_REGION_INFO_FLAG_MMAP == 0 || r.Size == 0 {
		return nil, fmt.Errorf("BAR%d (%d bytes) cannot be mapped", index, r.Size)
	}
	return dev.MapFile(t.device, int64(r.Offset), int(r.Size), unix.PROT_READ|unix.PROT_WRITE)
}

// The command word of PCI configuration space.
const (
	pciCommand = 0x04
	pciMemory  = 1 << 1 // the device decodes its BARs
	pciMaster  = 1 << 2 // the device may do DMA
)

// enable lets the device do DMA.
func (t *Transport) enable() error {
	return t.command(func(c uint16) uint16 { return c | pciMemory | pciMaster })
}

func (t *Transport) command(change func(uint16) uint16) error {
	r, err := t.region(abi.VFIO_PCI_CONFIG_REGION_INDEX)
	if err != nil {
		return err
	}
	var b [2]byte
	if _, err := t.device.ReadAt(b[:], int64(r.Offset)+pciCommand); err != nil {
		return fmt.Errorf("read configuration space: %w", err)
	}
	c := change(uint16(b[0]) | uint16(b[1])<<8)
	b = [2]byte{byte(c), byte(c >> 8)}
	if _, err := t.device.WriteAt(b[:], int64(r.Offset)+pciCommand); err != nil {
		return fmt.Errorf("write configuration space: %w", err)
	}
	return nil
}

// Name is the PCI address.
func (t *Transport) Name() string { return t.pci }

// MapHost maps memory of the process for DMA: host memory, which the kernel
// locks, or a mapping of another device's BAR.
func (t *Transport) MapHost(b []byte) (pages []uint64, size uint64, unmap func() error, err error) {
	if len(b) == 0 || len(b)%pageSize != 0 || addrOf(b)%pageSize != 0 {
		return nil, 0, nil, fmt.Errorf("vfio %s: map %d bytes: address and size must be multiples of %d: %w", t.pci, len(b), pageSize, syscall.EINVAL)
	}
	iova, err := t.mapDMA(addrOf(b), uint64(len(b)))
	if err != nil {
		return nil, 0, nil, fmt.Errorf("vfio %s: map %d bytes at %#x: %w", t.pci, len(b), addrOf(b), err)
	}
	var once sync.Once
	return []uint64{iova}, uint64(len(b)), func() error {
		err := error(syscall.EINVAL)
		once.Do(func() { err = t.unmapDMA(iova, uint64(len(b))) })
		return err
	}, nil
}

func (t *Transport) mapDMA(vaddr, n uint64) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return 0, os.ErrClosed
	}
	iova, ok := t.iovas.take(n)
	if !ok {
		return 0, fmt.Errorf("no free range of %d I/O addresses: %w", n, syscall.ENOMEM)
	}
	m := abi.DMAMap{
		Argsz: sizeOf[abi.DMAMap](), Flags: abi.VFIO_DMA_MAP_FLAG_READ | abi.VFIO_DMA_MAP_FLAG_WRITE,
		Vaddr: vaddr, Iova: iova, Size: n,
	}
	err := ioctlOn(t.container, abi.VFIO_IOMMU_MAP_DMA, &m)
	if err != nil {
		t.iovas.give(iova)
	}
	switch {
	case errors.Is(err, unix.ENOMEM):
		err = fmt.Errorf("%w (fix: raise the locked memory limit, ulimit -l)", err)
	case errors.Is(err, unix.EFAULT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM):
		err = fmt.Errorf("%w (the kernel does not accept this memory for DMA: not mapped, or cannot be pinned)", err)
	}
	return iova, err
}

func (t *Transport) unmapDMA(iova, n uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return nil // closing the container has unmapped it
	}
	t.iovas.give(iova)
	u := abi.DMAUnmap{Argsz: sizeOf[abi.DMAUnmap](), Iova: iova, Size: n}
	if err := ioctlOn(t.container, abi.VFIO_IOMMU_UNMAP_DMA, &u); err != nil {
		return fmt.Errorf("vfio %s: unmap: %w", t.pci, err)
	}
	return nil
}

// MapGPU maps GPU memory for DMA, through Config.View.
func (t *Transport) MapGPU(s gpu.Span) (pages []uint64, size uint64, unmap func() error, err error) {
	if t.cfg.View == nil {
		return nil, 0, nil, fmt.Errorf("vfio %s: map %v: GPU memory needs Config.View: %w", t.pci, s, errors.ErrUnsupported)
	}
	mem, release, err := t.cfg.View(s)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("vfio %s: map %v through BAR1: %w", t.pci, s, err)
	}
	pages, size, undo, err := t.MapHost(mem)
	if err != nil {
		return nil, 0, nil, errors.Join(fmt.Errorf("%v: %w", s, err), release())
	}
	return pages, size, func() error { return errors.Join(undo(), release()) }, nil
}

// Reset does a function level reset, if the device supports it.
func (t *Transport) Reset() error {
	if t.info.Flags&abi.VFIO_DEVICE_FLAGS_RESET == 0 {
		return fmt.Errorf("vfio %s: device has no function level reset: %w", t.pci, errors.ErrUnsupported)
	}
	if _, err := ioctl(t.device, abi.VFIO_DEVICE_RESET, 0); err != nil {
		return fmt.Errorf("vfio %s: %w", t.pci, err)
	}
	return t.enable()
}

// Close stops DMA and releases the drive, which vfio then resets.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.gone = true
	t.mu.Unlock()
	var errs []error
	if t.device != nil {
		errs = append(errs, t.irqs.close(t.device), t.command(func(c uint16) uint16 { return c &^ pciMaster }))
	}
	if t.bar != nil {
		errs = append(errs, t.bar.Unmap())
	}
	for _, f := range []*os.File{t.device, t.group, t.container} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
