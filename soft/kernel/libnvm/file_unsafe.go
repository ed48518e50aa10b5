package libnvm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/libnvm"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/user"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/nvme/dma"
)

// A file is one open of a device node.
type file struct {
	m     *Module
	drive *nvme.Controller
}

var _ kernel.File = (*file)(nil)

// Ioctl handles a request.
func (f *file) Ioctl(req uintptr, arg unsafe.Pointer) error {
	switch req {
	case abi.NVM_MAP_HOST_MEMORY:
		return f.mapMemory(arg, f.mapHost)
	case abi.NVM_MAP_DEVICE_MEMORY:
		if f.m.cfg.RM != nil {
			return f.mapMemory(arg, f.mapDevice)
		}
	case abi.NVM_UNMAP_MEMORY:
		return f.unmap(arg)
	}
	return syscall.EINVAL
}

// maxPages limits a request to one terabyte.
const maxPages = 1 << 28

func (f *file) mapMemory(arg unsafe.Pointer, run func(vaddr, pages uint64) (int, *mapping, error)) error {
	var req abi.Map
	if err := user.Get(&req, arg); err != nil {
		return err
	}
	switch {
	case req.NPages < 1:
		return syscall.EINVAL
	case req.NPages > maxPages:
		return syscall.ENOMEM
	}
	kind, p, err := run(req.VaddrStart, req.NPages)
	if err != nil {
		return err
	}
	f.m.cfg.Points.At("libnvm.mapped", p.vaddr)
	if _, err := user.Write(req.Ioaddrs, words(p.m.Addrs)); err != nil {
		if f.m.remove(kind, p) {
			_ = p.m.Unmap() // the first error is reported
		}
		return err
	}
	return nil
}

func (f *file) mapHost(vaddr, pages uint64) (int, *mapping, error) {
	vaddr &^= abi.HOST_PAGE_SIZE - 1
	pages = present(vaddr, pages)
	if pages == 0 {
		return host, nil, syscall.EFAULT
	}
	m, err := dma.Host(f.drive.Function(), bytesAt(vaddr, pages*abi.HOST_PAGE_SIZE), nil)
	if err != nil {
		return host, nil, syscall.ENOMEM
	}
	p := &mapping{owner: unix.Gettid(), vaddr: vaddr, m: m}
	f.m.add(host, p)
	return host, p, nil
}

func (f *file) mapDevice(vaddr, pages uint64) (int, *mapping, error) {
	vaddr &^= abi.GPU_PAGE_SIZE - 1
	p := &mapping{owner: unix.Gettid(), vaddr: vaddr}
	rm := f.m.cfg.RM
	lost := func() {
		f.m.cfg.Points.At("libnvm.callback", vaddr)
		f.m.lose(p)
	}
	var err error
	if p.m, err = dma.GPU(f.drive.Function(), rm, rm.Self.Task(), vaddr, pages*abi.GPU_PAGE_SIZE, lost); err != nil {
		return device, nil, err
	}
	f.m.add(device, p)
	return device, p, nil
}

func (f *file) unmap(arg unsafe.Pointer) error {
	var vaddr uint64
	if err := user.Get(&vaddr, arg); err != nil {
		return err
	}
	f.m.cfg.Points.At("libnvm.unmap", vaddr)
	p := f.m.take(unix.Gettid(), vaddr)
	if p == nil {
		return syscall.EINVAL
	}
	_ = p.m.Unmap() // it may have been lost at this moment
	return nil
}

// Mmap maps registers.
func (f *file) Mmap(off int64, n, prot int) (kernel.Mapping, error) {
	if off != 0 {
		return nil, syscall.EINVAL
	}
	return f.drive.MapBAR(n, prot)
}

// Release keeps the maps.
func (f *file) Release() {}

// present returns how many pages from vaddr on are mapped and writable, as
// get_user_pages does.
func present(vaddr, pages uint64) uint64 {
	if vaddr == 0 || vaddr+pages*abi.HOST_PAGE_SIZE < vaddr {
		return 0
	}
	populate := func(vaddr, n uint64) bool {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(vaddr), uintptr(n*abi.HOST_PAGE_SIZE), unix.MADV_POPULATE_WRITE)
		return errno == 0
	}
	if populate(vaddr, pages) {
		return pages
	}
	for i := range pages {
		if !populate(vaddr+i*abi.HOST_PAGE_SIZE, 1) {
			return i
		}
	}
	return pages
}

// bytesAt returns memory of the process, which present has checked.
func bytesAt(vaddr, n uint64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&vaddr)), n)
}

func words(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*len(w))
}
