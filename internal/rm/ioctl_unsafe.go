package rm

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
)

// call is dev.Ioctl with a check of the status, a field of arg.
func call[T any](n dev.Node, req uintptr, arg *T, status *nvrm.Status) error {
	if err := dev.Ioctl(n, req, arg); err != nil {
		return err
	}
	return status.Err()
}

// alloc allocates an object. params may be nil.
func alloc[T any](n dev.Node, p *nvrm.NVOS64Parameters, params *T) error {
	if params != nil {
		var pin runtime.Pinner
		pin.Pin(params)
		defer pin.Unpin()
		p.PAllocParms = uint64(uintptr(unsafe.Pointer(params)))
		p.ParamsSize = uint32(unsafe.Sizeof(*params))
	}
	return call(n, nvrm.IoctlAlloc, p, &p.Status)
}

// control makes a control call on the client object.
func control[T any](n dev.Node, client nvrm.Handle, cmd uint32, params *T) error {
	var pin runtime.Pinner
	pin.Pin(params)
	defer pin.Unpin()
	p := nvrm.NVOS54Parameters{
		HClient: client, HObject: client, Cmd: cmd,
		Params: uint64(uintptr(unsafe.Pointer(params))), ParamsSize: uint32(unsafe.Sizeof(*params)),
	}
	if err := call(n, nvrm.IoctlControl, &p, &p.Status); err != nil {
		return fmt.Errorf("control %#x: %w", cmd, err)
	}
	return nil
}
