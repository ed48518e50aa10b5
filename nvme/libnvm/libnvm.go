// Package libnvm is the nvme.Transport over the kernel module of ssd-gpu-dma
// (/dev/libnvm*), which maps host and GPU memory for a controller. The module has
// no interrupts: the driver polls.
package libnvm

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/libnvm"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/internal/mmio"
)

// barSizes are the sizes of BAR0 to try, largest first. Every controller has the
// smallest.
var barSizes = []int{64 << 10, 32 << 10, 16 << 10, 8 << 10}

// Sizes of the pages that the module maps.
const (
	hostPage = 4 << 10
	gpuPage  = 64 << 10
)

// A Transport is a controller bound to the module.
type Transport struct {
	registers
	d   *client.Device
	bar dev.Mapping
}

// registers is embedded unexported, so that users do not see an internal type.
type registers = mmio.Registers

var _ nvme.Transport = (*Transport)(nil)

// Paths returns the device nodes of the controllers that are bound to the module.
func Paths(m *machine.Machine) []string { return client.Paths(dev.Of(m)) }

// Open opens the controller with a device node of m, such as "/dev/libnvm0".
func Open(m *machine.Machine, path string) (*Transport, error) {
	d, err := client.Open(dev.Of(m), path)
	if err != nil {
		return nil, fmt.Errorf("libnvm: %w", err)
	}
	t := &Transport{d: d}
	for _, n := range barSizes {
		if t.bar, err = d.BAR(n); err == nil {
			t.registers = mmio.Of(t.bar)
			return t, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("libnvm: map registers: %w", err), d.Close())
}

// Name is the device node: the module does not report the PCI address.
func (t *Transport) Name() string { return t.d.Path() }

// MapHost maps host memory.
func (t *Transport) MapHost(b []byte) (pages []uint64, size uint64, unmap func() error, err error) {
	pages, err = t.d.MapHost(b)
	if err != nil {
		return nil, 0, nil, err
	}
	return pages, hostPage, t.unmap(uint64(gpu.HostAddr(b))), nil
}

// MapGPU maps GPU memory.
func (t *Transport) MapGPU(s gpu.Span) (pages []uint64, size uint64, unmap func() error, err error) {
	pages, err = t.d.MapGPU(uint64(s.Addr()), s.Len)
	if err != nil {
		return nil, 0, nil, err
	}
	return pages, gpuPage, t.unmap(uint64(s.Addr())), nil
}

func (t *Transport) unmap(addr uint64) func() error { return func() error { return t.d.Unmap(addr) } }

// Interrupt fails: the module has none.
func (t *Transport) Interrupt(int) (<-chan struct{}, error) {
	return nil, fmt.Errorf("%s: interrupts: %w", t.Name(), errors.ErrUnsupported)
}

// Reset fails: the module does not support it.
func (t *Transport) Reset() error {
	return fmt.Errorf("%s: function level reset: %w", t.Name(), errors.ErrUnsupported)
}

// Close unmaps everything and closes the device node.
func (t *Transport) Close() error { return errors.Join(t.bar.Unmap(), t.d.Close()) }
