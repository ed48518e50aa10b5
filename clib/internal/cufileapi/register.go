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
const (
	handleTypeFD        = 1
	handleTypeUserSpace = 3
)

// descr is CUfileDescr_t.
type descr struct {
	_      structs.HostLayout
	Type   int32
	Pad0   [4]byte
	Handle cmem.Ptr // or a descriptor in its low half
	FSOps  cmem.Ptr
}

// register returns how the driver registers what the descr describes.
func (de descr) register(call Caller) (func(*cufile.Driver) (*cufile.File, error), error) {
	switch de.Type {
	case handleTypeFD:
		return func(drv *cufile.Driver) (*cufile.File, error) { return drv.RegisterFD(int(int32(de.Handle))) }, nil
	case handleTypeUserSpace:
		fs, err := newFileSystem(call, de.Handle, de.FSOps)
		return func(drv *cufile.Driver) (*cufile.File, error) { return drv.RegisterSource(fs) }, err
	}
	return nil, &cufile.Error{Op: "register", Object: "handle", Code: cufile.IONotSupported, Err: fmt.Errorf("handle type %d is not supported (only file descriptors and user-space file systems)", de.Type)}
}

// HandleRegister is cuFileHandleRegister. The function of a user-space file system is
// called before any lock is held: it may call cuFile.
func (a *API) HandleRegister(out, in cmem.Ptr) error {
	register, err := cmem.Load[descr](in).register(a.Caller)
	if err != nil {
		return err
	}
	cmem.Touch(out)
	drv, err := a.driver()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := register(drv)
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
	return cmem.Answer(out, id)
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
