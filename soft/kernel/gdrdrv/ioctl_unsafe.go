package gdrdrv

import (
	"syscall"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/user"
)

// foreign is a file in a process that did not open it.
type foreign struct{ *File }

// Ioctl checks the type of the request only.
func (foreign) Ioctl(req uintptr, _ unsafe.Pointer) error {
	if req>>8&0xff != abi.GDRDRV_IOCTL {
		return syscall.EINVAL
	}
	return syscall.EACCES
}

func (foreign) Mmap(int64, int, int) (kernel.Mapping, error) { return nil, syscall.EACCES }

// A handler handles one request.
type handler func(f *File, arg unsafe.Pointer) error

// on makes a handler of a method that changes its argument, which is copied back on
// success.
func on[T any](run func(f *File, p *T) error) handler {
	return func(f *File, arg unsafe.Pointer) error {
		var p T
		if err := user.Get(&p, arg); err != nil {
			return err
		}
		if err := run(f, &p); err != nil {
			return err
		}
		return user.Put(arg, &p)
	}
}

var handlers = map[uintptr]handler{
	abi.GDRDRV_IOC_PIN_BUFFER:       (*File).pinBuffer,
	abi.GDRDRV_IOC_PIN_BUFFER_V2:    (*File).pinBufferV2,
	abi.GDRDRV_IOC_UNPIN_BUFFER:     on((*File).unpinBuffer),
	abi.GDRDRV_IOC_GET_CB_FLAG:      on((*File).getCBFlag),
	abi.GDRDRV_IOC_GET_INFO:         on((*File).getInfo),
	abi.GDRDRV_IOC_GET_INFO_V2:      on((*File).getInfoV2),
	abi.GDRDRV_IOC_GET_ATTR:         on((*File).getAttr),
	abi.GDRDRV_IOC_REQ_MAPPING_TYPE: on((*File).reqMappingType),
	abi.GDRDRV_IOC_GET_VERSION:      on((*File).getVersion),
}

// Ioctl handles a request of the process that opened the file.
func (f *File) Ioctl(req uintptr, arg unsafe.Pointer) error {
	if req>>8&0xff != abi.GDRDRV_IOCTL {
		return syscall.EINVAL
	}
	h := handlers[req]
	if h == nil {
		return syscall.ENOTTY
	}
	return h(f, arg)
}

func (f *File) pinBuffer(arg unsafe.Pointer) error {
	var p abi.PinBufferParams
	return pinWith(f, arg, &p, func() (*buffer, error) { return f.pin(p.Addr, p.Size, p.P2PToken, p.VASpace, 0) }, &p.Handle)
}

func (f *File) pinBufferV2(arg unsafe.Pointer) error {
	var p abi.PinBufferParamsV2
	return pinWith(f, arg, &p, func() (*buffer, error) { return f.pin(p.Addr, p.Size, 0, 0, p.Flags) }, &p.Handle)
}

// pinWith pins with the arguments p. It undoes the pin if the handle cannot be copied to
// the process.
func pinWith[T any](f *File, arg unsafe.Pointer, p *T, pin func() (*buffer, error), handle *uint64) error {
	if err := user.Get(p, arg); err != nil {
		return err
	}
	b, err := pin()
	if err != nil {
		return err
	}
	*handle = b.handle
	if err = user.Put(arg, p); err == nil {
		return nil
	}
	if b, taken := f.take(b.handle); taken == nil {
		_ = b.unpin() // the first error is reported
	}
	return err
}

func (f *File) unpinBuffer(p *abi.UnpinBufferParams) error {
	b, err := f.take(p.Handle)
	if err != nil {
		return err
	}
	return b.unpin()
}

func (f *File) getCBFlag(p *abi.GetCBFlagParams) error {
	b, err := f.find(p.Handle)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p.Flag = 0
	if b.revoked {
		p.Flag = 1
	}
	return nil
}

func (f *File) getInfo(p *abi.GetInfoParams) error {
	v := abi.GetInfoParamsV2{Handle: p.Handle}
	if err := f.getInfoV2(&v); err != nil {
		return err
	}
	*p = abi.GetInfoParams{
		Handle: v.Handle, VA: v.VA, MappedSize: v.MappedSize, PageSize: v.PageSize, TscKHz: v.TscKHz, TmCycles: v.TmCycles,
	}
	if v.MappingType == abi.GDR_MAPPING_TYPE_WC {
		p.Mapped, p.WCMapping = 1, 1
	}
	return nil
}

func (f *File) getInfoV2(p *abi.GetInfoParamsV2) error {
	b, err := f.find(p.Handle)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	*p = abi.GetInfoParamsV2{
		Handle: p.Handle, VA: b.va, MappedSize: b.size, PageSize: abi.GPU_PAGE_SIZE,
		TscKHz: tscKHz, TmCycles: uint64(b.took), MappingType: b.mappingType(), Pad0: p.Pad0,
	}
	return nil
}

func (f *File) getAttr(p *abi.GetAttrParams) error {
	switch p.Attr {
	case abi.GDRDRV_ATTR_USE_PERSISTENT, abi.GDRDRV_ATTR_SUPPORT_PIN_PCIE:
		p.Val = 1
		if f.m.cfg.Callback {
			p.Val = 0
		}
		return nil
	}
	return syscall.EINVAL
}

func (f *File) reqMappingType(p *abi.ReqMappingTypeParams) error {
	if p.MappingType > abi.GDR_MAPPING_TYPE_DEVICE {
		return syscall.EINVAL
	}
	b, err := f.find(p.Handle)
	if err != nil {
		return err
	}
	return b.request(p.MappingType)
}

func (f *File) getVersion(p *abi.GetVersionParams) error {
	p.GdrdrvVersion, p.MinimumGdrAPIVersion = abi.GDRDRV_VERSION, abi.MINIMUM_GDR_API_VERSION
	return nil
}
