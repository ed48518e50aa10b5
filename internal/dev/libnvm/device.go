package libnvm

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/libnvm"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Device is a controller's open device node. It is safe for concurrent use.
type Device struct {
	path  string
	node  dev.Node
	calls chan func()
	ended chan struct{}

	mu     sync.Mutex
	closed bool
	maps   []uint64 // addresses
}

// Paths returns the module's device nodes, which are numbered without gaps.
func Paths(o dev.OS) []string {
	var list []string
	for i := range abi.MaxControllers {
		path := fmt.Sprintf(abi.Path, i)
		n, err := o.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		list = append(list, path)
		if err == nil {
			_ = n.Close() // opened only to see that it exists
		}
	}
	return list
}

// Open opens a controller's device node.
func Open(o dev.OS, path string) (*Device, error) {
	n, err := o.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: load the module libnvm and bind the drive to it (echo its PCI address to /sys/bus/pci/drivers/libnvm helper/bind)", err)
	}
	if err != nil {
		return nil, err
	}
	d := &Device{path: path, node: n, calls: make(chan func()), ended: make(chan struct{})}
	go d.thread()
	return d, nil
}

// Path returns the path of the device node.
func (d *Device) Path() string { return d.path }

// thread makes the requests. It ends with its thread, so that no other goroutine gets
// a thread that the module knows.
func (d *Device) thread() {
	runtime.LockOSThread()
	defer close(d.ended)
	for call := range d.calls {
		call()
	}
}

// BAR maps the first n bytes of the controller's registers.
func (d *Device) BAR(n int) (dev.Mapping, error) {
	return d.node.Mmap(0, n, syscall.PROT_READ|syscall.PROT_WRITE)
}

// MapHost maps whole pages of host memory. It returns the bus address of each 4 KiB
// page.
func (d *Device) MapHost(b []byte) ([]uint64, error) {
	if len(b) == 0 || len(b)%abi.HOST_PAGE_SIZE != 0 {
		return nil, fmt.Errorf("%s: map %d bytes of host memory: size must be a multiple of %d: %w", d.path, len(b), abi.HOST_PAGE_SIZE, syscall.EINVAL)
	}
	return d.mapMemory(abi.NVM_MAP_HOST_MEMORY, addrOf(b), len(b)/abi.HOST_PAGE_SIZE, abi.HOST_PAGE_SIZE)
}

// MapGPU maps n bytes of GPU memory at an address, both multiples of 64 KiB. It
// returns the bus address of each 64 KiB page.
func (d *Device) MapGPU(addr, n uint64) ([]uint64, error) {
	if n == 0 || n%abi.GPU_PAGE_SIZE != 0 {
		return nil, fmt.Errorf("%s: map %d bytes of GPU memory: size must be a multiple of %d: %w", d.path, n, abi.GPU_PAGE_SIZE, syscall.EINVAL)
	}
	return d.mapMemory(abi.NVM_MAP_DEVICE_MEMORY, addr, int(n/abi.GPU_PAGE_SIZE), abi.GPU_PAGE_SIZE)
}

// nowhere marks words that the module did not set.
const nowhere = 1<<64 - 1

func (d *Device) mapMemory(req uintptr, addr uint64, pages int, size uint64) ([]uint64, error) {
	fail := func(err error) ([]uint64, error) {
		return nil, fmt.Errorf("%s: map %d pages of %d bytes at %#x: %w", d.path, pages, size, addr, err)
	}
	if addr%size != 0 {
		return fail(syscall.EINVAL)
	}
	if err := d.reserve(addr); err != nil {
		return fail(err)
	}
	ioaddrs := make([]uint64, pages)
	for i := range ioaddrs {
		ioaddrs[i] = nowhere
	}
	var err error
	d.call(func() { err = d.ioctlMap(req, addr, ioaddrs) })
	if err != nil {
		d.drop(addr)
		return fail(err)
	}
	// The module maps up to the first missing page, without an error.
	if i := slices.Index(ioaddrs, nowhere); i >= 0 {
		return fail(errors.Join(fmt.Errorf("only %d pages exist: %w", i, syscall.EFAULT), d.Unmap(addr)))
	}
	return ioaddrs, nil
}

// Unmap removes the map that begins at an address. It returns EINVAL if the module
// has lost it because GPU memory was freed.
func (d *Device) Unmap(addr uint64) error {
	if !d.drop(addr) {
		return fmt.Errorf("%s: unmap %#x: not mapped: %w", d.path, addr, syscall.EINVAL)
	}
	var err error
	d.call(func() { err = d.ioctlUnmap(addr) })
	if err != nil {
		return fmt.Errorf("%s: unmap %#x: %w", d.path, addr, err)
	}
	return nil
}

// call runs fn on the device's thread.
func (d *Device) call(fn func()) {
	done := make(chan struct{})
	d.calls <- func() {
		defer close(done)
		fn()
	}
	<-done
}

// reserve adds an address, unless the module could confuse it with another.
func (d *Device) reserve(addr uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fs.ErrClosed
	}
	for _, m := range d.maps {
		if m/abi.GPU_PAGE_SIZE == addr/abi.GPU_PAGE_SIZE {
			return fmt.Errorf("memory at %#x is mapped: the module confuses maps that begin in the same %d bytes: %w", m, abi.GPU_PAGE_SIZE, syscall.EBUSY)
		}
	}
	d.maps = append(d.maps, addr)
	return nil
}

// drop removes an address and reports whether it was known.
func (d *Device) drop(addr uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.maps, addr)
	if i >= 0 {
		d.maps = slices.Delete(d.maps, i, i+1)
	}
	return i >= 0
}

// Close unmaps all memory and closes the device node. Mappings of registers stay.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return fmt.Errorf("%s: close: %w", d.path, fs.ErrClosed)
	}
	d.closed = true
	left := slices.Clone(d.maps)
	d.mu.Unlock()
	var errs []error
	for _, addr := range left {
		if err := d.Unmap(addr); !errors.Is(err, syscall.EINVAL) {
			errs = append(errs, err)
		}
	}
	close(d.calls)
	<-d.ended
	return errors.Join(append(errs, d.node.Close())...)
}
