package gpumem

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/kernel/user"
)

// A File is one open of the device node.
type File struct {
	m     *Module
	owner *p2p.Process
}

var _ kernel.File = (*File)(nil)

// Open opens the device node for a process.
func (m *Module) Open(p *p2p.Process) *File { return &File{m, p} }

// By returns the file as another process sees it that inherited it.
func (f *File) By(p *p2p.Process) kernel.File { return &File{f.m, p} }

// Release does nothing: locks belong to the process.
func (f *File) Release() {}

// Ioctl handles a request.
func (f *File) Ioctl(req uintptr, arg unsafe.Pointer) error {
	switch req {
	case abi.IOCTL_GPUMEM_LOCK:
		return f.lock(arg)
	case abi.IOCTL_GPUMEM_UNLOCK:
		return f.unlock(arg)
	case abi.IOCTL_GPUMEM_STATE:
		return f.state(arg)
	}
	return syscall.EINVAL
}

func (f *File) lock(arg unsafe.Pointer) error {
	var p abi.Lock
	if err := user.Get(&p, arg); err != nil {
		return err
	}
	e, err := f.m.lock(f.owner, p.Addr, p.Size)
	if err != nil {
		return err
	}
	p.Handle, p.PageCount = e.handle, uint64(e.table.Entries())
	if err := user.Put(arg, &p); err != nil {
		if e := f.m.take(f.owner, e.handle); e != nil {
			e.drop()
		}
		return err
	}
	return nil
}

func (f *File) unlock(arg unsafe.Pointer) error {
	var p abi.Unlock
	if err := user.Get(&p, arg); err != nil {
		return err
	}
	f.m.cfg.Points.At("gpumem.unlock", p.Handle)
	e := f.m.take(f.owner, p.Handle)
	if e == nil {
		return syscall.EINVAL
	}
	e.drop()
	return nil
}

// state returns the addresses and one more zero, as the module does.
func (f *File) state(arg unsafe.Pointer) error {
	var header [abi.StateHeader]byte
	if err := user.Get(&header, arg); err != nil {
		return err
	}
	e := f.m.find(f.owner, binary.NativeEndian.Uint64(header[:]))
	if e == nil {
		return nil // as in the module
	}
	pages := e.table.Pages
	if binary.NativeEndian.Uint64(header[8:]) != uint64(len(pages)) {
		return syscall.EINVAL
	}
	if e.gone() {
		return syscall.ENODEV
	}
	out := binary.NativeEndian.AppendUint64(append(make([]byte, 0, abi.StateSize(uint64(len(pages)))), header[:16]...), abi.GPU_BOUND_SIZE)
	for _, p := range pages {
		out = binary.NativeEndian.AppendUint64(out, p)
	}
	out = binary.NativeEndian.AppendUint64(out, 0)
	_, err := user.Write(arg, out)
	return err
}

// Mmap maps physical addresses that the process has locked.
func (f *File) Mmap(off int64, n, prot int) (kernel.Mapping, error) {
	page := uint64(syscall.Getpagesize())
	if off < 0 || uint64(off)%page != 0 || n <= 0 {
		return nil, syscall.EINVAL
	}
	size := (uint64(n) + page - 1) &^ (page - 1)
	for _, e := range f.m.locked(f.owner) {
		if at, ok := e.at(uint64(off), size); ok && !e.gone() {
			return e.mmap(at, size, prot)
		}
	}
	return nil, syscall.EINVAL
}
