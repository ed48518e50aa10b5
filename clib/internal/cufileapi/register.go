package cufileapi

import (
	"errors"
	"fmt"
	"structs"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// CUfileFileHandleType.
const handleTypeFD = 1

// descr is CUfileDescr_t.
type descr struct {
	_     structs.HostLayout
	Type  int32
	Pad0  [4]byte
	FD    int32 // of the union with a pointer
	Pad1  [4]byte
	FSOps cmem.Ptr
}

// HandleRegister is cuFileHandleRegister. Only file descriptors are supported.
func (a *API) HandleRegister(out, in cmem.Ptr) error {
	de := cmem.Load[descr](in)
	if de.Type != handleTypeFD {
		return &cufile.Error{Op: "register", Object: "handle", Code: cufile.IONotSupported, Err: fmt.Errorf("handle type %d is not supported (only file descriptors)", de.Type)}
	}
	cmem.Touch(out)
	drv, err := a.driver()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := drv.RegisterFD(int(de.FD))
	a.stats.note(&a.stats.total.Basic.HdlRegisterOps, err)
	if err != nil {
		return err
	}
	id, ok := a.files.Add(f)
	if !ok {
		f.Close()
		return cufile.NoMemError
	}
	a.leases.AddFile(f, id)
	cmem.Store(out, id)
	return nil
}

// HandleDeregister is cuFileHandleDeregister. C does not see its error.
func (a *API) HandleDeregister(id handle.ID) error {
	f, ok := a.files.Remove(id)
	if !ok {
		return cufile.HandleNotRegistered
	}
	err := f.Close()
	a.stats.note(&a.stats.total.Basic.HdlDeregisterOps, err)
	a.leases.RemoveFile(f)
	return err
}

// BufRegister is cuFileBufRegister. The flags concern RDMA registration, which
// happens on demand; NVIDIA's library accepts any, too.
func (a *API) BufRegister(base cmem.Ptr, n uint64, _ int32) error {
	drv, err := a.driver()
	if err != nil {
		return err
	}
	_, err = drv.RegisterBuffer(gpu.Addr(base), n)
	a.stats.note(&a.stats.total.Basic.BufRegisterOps, err)
	return err
}

// BufDeregister is cuFileBufDeregister.
func (a *API) BufDeregister(base cmem.Ptr) error {
	drv := a.drv.Load()
	if drv == nil || drv.UseCount() == 0 {
		return &cufile.Error{Op: "deregister buffer", Object: gpu.Addr(base).String(), Code: cufile.DriverClosing, Err: errors.New("driver is closed; closing it ended all registrations")}
	}
	b, err := drv.Buffer(gpu.Addr(base))
	if err != nil {
		return err
	}
	err = b.Close()
	a.stats.note(&a.stats.total.Basic.BufDeregisterOps, err)
	return err
}
