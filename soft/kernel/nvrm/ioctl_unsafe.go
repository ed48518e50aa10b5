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

// on makes a handler of a method that writes its status into the argument.
func on[T any](run func(f *ctlFile, p *T)) handler {
	var zero T
	return handler{unsafe.Sizeof(zero), func(f *ctlFile, arg unsafe.Pointer) error {
		f.m.mu.Lock()
		defer f.m.mu.Unlock()
		run(f, (*T)(arg))
		return nil
	}}
}

var ctlHandlers = map[int]handler{
	nvrm.NV_ESC_RM_ALLOC:          on((*ctlFile).alloc),
	nvrm.NV_ESC_RM_FREE:           on((*ctlFile).freeObject),
	nvrm.NV_ESC_RM_DUP_OBJECT:     on((*ctlFile).dup),
	nvrm.NV_ESC_RM_UNMAP_MEMORY:   on((*ctlFile).unmapMemory),
	nvrm.NV_ESC_RM_CONTROL:        on((*ctlFile).control),
	nvrm.NV_ESC_RM_MAP_MEMORY:     on((*ctlFile).mapMemory),
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
