package ibverbs

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// Name is the provider's name.
const Name = "ibverbs"

// A Provider has the adapters that libibverbs finds.
type Provider struct {
	lib *library

	mu   sync.Mutex
	open int // devices
}

var _ rdma.Provider = (*Provider)(nil)

// Open loads libibverbs. Errors wrap [ErrNoLibrary] or [ErrOwnLibrary].
func Open() (*Provider, error) { return OpenLibrary("") }

// OpenLibrary loads a libibverbs from a file; "" means as Open.
func OpenLibrary(file string) (*Provider, error) {
	lib, err := load(file)
	if err != nil {
		return nil, fmt.Errorf("provider ibverbs: %w", err)
	}
	return &Provider{lib: lib}, nil
}

// Name implements rdma.Provider.
func (p *Provider) Name() string { return Name }

// Library is the file of the library.
func (p *Provider) Library() string { return p.lib.path }

// Devices implements rdma.Provider. A kernel without RDMA has none.
func (p *Provider) Devices() ([]rdma.DeviceInfo, error) {
	var list []rdma.DeviceInfo
	err := p.each(func(dev uintptr) bool {
		list = append(list, p.lib.describe(dev))
		return true
	})
	return list, err
}

// each calls visit with each struct ibv_device until it returns false. A device stays
// valid during the call only, unless it is opened there.
func (p *Provider) each(visit func(dev uintptr) bool) error {
	n := new(int32)
	list, err := object(p.lib.getDeviceList, dl.Ref(n))
	if rdma.Errno(err) == syscall.ENOSYS {
		return nil // the modules are not loaded
	}
	if err != nil {
		return fmt.Errorf("provider ibverbs: list devices: %w (fix: check the permissions of /dev/infiniband and /sys/class/infiniband_verbs)", err)
	}
	defer p.lib.freeDeviceList.Call(list)
	for _, dev := range pointers(list, int(*n)) {
		if !visit(dev) {
			break
		}
	}
	return nil
}

func (l *library) describe(dev uintptr) rdma.DeviceInfo {
	name := text(l.getDeviceName.Call(dev))
	// The library has it in network order.
	guid := bits.ReverseBytes64(uint64(l.getDeviceGUID.Call(dev)))
	return rdma.DeviceInfo{Name: name, GUID: guid, PCI: pciOf("/sys", name)}
}

var bdf = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// pciOf is the PCI address of a device; "" for a software device.
func pciOf(sys, name string) string {
	link, err := os.Readlink(filepath.Join(sys, "class/infiniband", name, "device"))
	if base := filepath.Base(link); err == nil && bdf.MatchString(base) {
		return base
	}
	return ""
}

// Open implements rdma.Provider.
func (p *Provider) Open(name string) (rdma.Device, error) {
	var d *Device
	var fail error
	var names []string
	err := p.each(func(dev uintptr) bool {
		info := p.lib.describe(dev)
		names = append(names, info.Name)
		if name != "" && info.Name != name {
			return true
		}
		d, fail = p.openDevice(dev, info)
		return false
	})
	switch {
	case err != nil:
		return nil, err
	case fail != nil:
		return nil, fail
	case d == nil:
		return nil, noDevice(name, names)
	}
	return d, nil
}

func noDevice(name string, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("provider ibverbs: no RDMA device (fix: load the adapter's driver and install its library, in Debian ibverbs-providers; in a container give it /dev/infiniband): %w", syscall.ENODEV)
	}
	return fmt.Errorf("provider ibverbs: no device %q (devices: %s): %w", name, strings.Join(names, ", "), syscall.ENODEV)
}

// Close implements rdma.Provider. The library stays loaded: its providers cannot be
// unloaded.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open > 0 {
		return fmt.Errorf("close provider ibverbs: %d devices are open: %w", p.open, syscall.EBUSY)
	}
	return nil
}

func (p *Provider) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}
