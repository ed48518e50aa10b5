package rm

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
)

// alloc makes an object. params may be nil.
func alloc[T any](n dev.Node, p *nvrm.NVOS64Parameters, params *T) error {
	if params != nil {
		var pin runtime.Pinner
		pin.Pin(params)
		defer pin.Unpin()
		p.PAllocParms = uint64(uintptr(unsafe.Pointer(params)))
		p.ParamsSize = uint32(unsafe.Sizeof(*params))
	}
	if err := dev.Ioctl(n, nvrm.IoctlAlloc, p); err != nil {
		return err
	}
	return p.Status.Err()
}

// control issues a command of the client object itself.
func control[T any](n dev.Node, client nvrm.Handle, cmd uint32, params *T) error {
	var pin runtime.Pinner
	pin.Pin(params)
	defer pin.Unpin()
	p := nvrm.NVOS54Parameters{
		HClient: client, HObject: client, Cmd: cmd,
		Params: uint64(uintptr(unsafe.Pointer(params))), ParamsSize: uint32(unsafe.Sizeof(*params)),
	}
	if err := dev.Ioctl(n, nvrm.IoctlControl, &p); err != nil {
		return err
	}
	if err := p.Status.Err(); err != nil {
		return fmt.Errorf("control %#x: %w", cmd, err)
	}
	return nil
}
