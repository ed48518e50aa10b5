package nvrm

import (
	"syscall"
	"unsafe"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

// handler handles one request. It returns an errno; the resource manager's status is
// written into the argument.
type handler struct {
	size uintptr
	run  func(f *ctlFile, arg unsafe.Pointer) error
}

// on makes a handler of a method for a client. Every argument begins with the handle of
// the client, and has its status where status says.
func on[T any](run func(f *ctlFile, c *client, p *T) nvrm.Status, status func(p *T) *nvrm.Status) handler {
	var zero T
	return handler{unsafe.Sizeof(zero), func(f *ctlFile, arg unsafe.Pointer) error {
		f.m.mu.Lock()
		defer f.m.mu.Unlock()
		p := (*T)(arg)
		c, s := f.m.client(*(*nvrm.Handle)(arg), f)
		if s == nvrm.NV_OK {
			s = run(f, c, p)
		}
		*status(p) = s
		return nil
	}}
}

var allocHandler = on((*ctlFile).alloc, func(p *nvrm.NVOS64Parameters) *nvrm.Status { return &p.Status })

var ctlHandlers = map[int]handler{
	nvrm.NV_ESC_RM_ALLOC:          {allocHandler.size, alloc},
	nvrm.NV_ESC_RM_FREE:           on((*ctlFile).freeObject, func(p *nvrm.NVOS00Parameters) *nvrm.Status { return &p.Status }),
	nvrm.NV_ESC_RM_DUP_OBJECT:     on((*ctlFile).dup, func(p *nvrm.NVOS55Parameters) *nvrm.Status { return &p.Status }),
	nvrm.NV_ESC_RM_UNMAP_MEMORY:   on((*ctlFile).unmapMemory, func(p *nvrm.NVOS34Parameters) *nvrm.Status { return &p.Status }),
	nvrm.NV_ESC_RM_CONTROL:        on((*ctlFile).control, func(p *nvrm.NVOS54Parameters) *nvrm.Status { return &p.Status }),
	nvrm.NV_ESC_RM_MAP_MEMORY:     on((*ctlFile).mapMemory, func(p *nvrm.NVOS33ParametersWithFD) *nvrm.Status { return &p.Params.Status }),
	nvrm.NV_ESC_CHECK_VERSION_STR: {unsafe.Sizeof(nvrm.RMAPIVersion{}), checkVersion},
	nvrm.NV_ESC_REGISTER_FD: {unsafe.Sizeof(nvrm.RegisterFD{}), func(f *ctlFile, arg unsafe.Pointer) error {
		return f.register(f.m, f, int((*nvrm.RegisterFD)(arg).CtlFD))
	}},
}

// Ioctl checks number and size of the request, as the driver does.
func (f *ctlFile) Ioctl(req uintptr, arg unsafe.Pointer) error {
	nr, size := nvrm.IoctlNumber(req), nvrm.IoctlSize(req)
	if arg == nil {
		return syscall.EFAULT
	}
	if nr == nvrm.NV_ESC_CARD_INFO {
		const entry = unsafe.Sizeof(nvrm.CardInfo{})
		return f.m.cardInfo(unsafe.Slice((*nvrm.CardInfo)(arg), uintptr(size)/entry))
	}
	h, ok := ctlHandlers[nr]
	if !ok || uintptr(size) != h.size {
		return syscall.EINVAL
	}
	return h.run(f, arg)
}

// Ioctl of a GPU's device node has one request; the others are for /dev/nvidiactl.
func (f *gpuFile) Ioctl(req uintptr, arg unsafe.Pointer) error {
	switch {
	case arg == nil:
		return syscall.EFAULT
	case nvrm.IoctlNumber(req) != nvrm.NV_ESC_REGISTER_FD || uintptr(nvrm.IoctlSize(req)) != unsafe.Sizeof(nvrm.RegisterFD{}):
		return syscall.EINVAL
	}
	return f.register(f.m, f, int((*nvrm.RegisterFD)(arg).CtlFD))
}

// alloc makes a client, or another object of one.
func alloc(f *ctlFile, arg unsafe.Pointer) error {
	p := (*nvrm.NVOS64Parameters)(arg)
	switch p.HClass {
	case nvrm.NV01_ROOT, nvrm.NV01_ROOT_NON_PRIV, nvrm.NV01_ROOT_CLIENT:
		f.m.mu.Lock()
		defer f.m.mu.Unlock()
		p.HClass, p.Status = nvrm.NV01_ROOT_CLIENT, nvrm.NV_OK
		p.HObjectNew = f.m.newClient(f).handle
		return nil
	}
	return allocHandler.run(f, arg)
}

func checkVersion(f *ctlFile, arg unsafe.Pointer) error {
	return f.m.checkVersion((*nvrm.RMAPIVersion)(arg))
}

// params returns the parameters of an allocation or a control.
func params[T any](addr uint64, size uint32) (*T, nvrm.Status) {
	var zero T
	switch {
	case uintptr(size) != unsafe.Sizeof(zero):
		return nil, nvrm.NV_ERR_INVALID_PARAM_STRUCT
	case addr == 0:
		return nil, nvrm.NV_ERR_INVALID_ARGUMENT
	}
	// The client pins the parameters during the call.
	return *(**T)(unsafe.Pointer(&addr)), nvrm.NV_OK
}
