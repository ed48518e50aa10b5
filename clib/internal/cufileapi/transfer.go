package cufileapi

import (
	"context"
	"errors"
	"structs"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// Read is cuFileRead.
func (a *API) Read(id handle.ID, base cmem.Ptr, n uint64, off, bufOff int64) (int64, error) {
	return a.transfer(route.Read, id, base, n, off, bufOff)
}

// Write is cuFileWrite.
func (a *API) Write(id handle.ID, base cmem.Ptr, n uint64, off, bufOff int64) (int64, error) {
	return a.transfer(route.Write, id, base, n, off, bufOff)
}

func (a *API) transfer(dir route.Dir, id handle.ID, base cmem.Ptr, n uint64, off, bufOff int64) (int64, error) {
	f, err := a.file(id)
	if err != nil {
		return 0, err
	}
	switch {
	case base == 0:
		return 0, unix.EINVAL
	case bufOff < 0:
		return 0, unix.EIO // what a copy to an address before the buffer comes to
	}
	return a.move(dir, f, gpu.Span{Base: gpu.Addr(base), Off: uint64(bufOff), Len: n}, off)
}

// move moves the bytes, and counts them where that was asked for.
func (a *API) move(dir route.Dir, f *cufile.File, mem gpu.Span, off int64) (int64, error) {
	var (
		r   route.Receipt
		err error
	)
	if dir == route.Read {
		r, err = f.ReadAt(context.Background(), mem, off)
	} else {
		r, err = f.WriteAt(context.Background(), mem, off)
	}
	if a.stats.on.Load() {
		a.stats.transfer(&r, a.gpuOf(mem.Base), err)
	}
	if err != nil && !partial(r.Bytes, err) {
		return 0, err
	}
	return r.Bytes, nil
}

// partial reports whether the operating system stopped a transfer that had
// begun, on a full disk for example. As with pwrite the caller gets what was
// done, and the error with the next call.
func partial(done int64, err error) bool {
	_, system := errors.AsType[unix.Errno](err)
	return system && done > 0
}

func (a *API) file(id handle.ID) (*cufile.File, error) {
	if id == 0 {
		return nil, unix.EINVAL
	}
	f, ok := a.files.Get(id)
	if !ok && a.files.Stale(id) {
		return nil, cufile.HandleNotRegistered
	}
	if !ok {
		return nil, unix.EINVAL // as NVIDIA's library says of what was never a handle
	}
	return f, nil
}

// ioVec is CUfileIOVec_t.
type ioVec struct {
	_    structs.HostLayout
	Base cmem.Ptr
	Len  uint64
}

// maxVec is the kernel's limit for readv, which fits here as well as any.
const maxVec = 1024

// Readv is cuFileReadv: one range of the file into several buffers.
func (a *API) Readv(id handle.ID, iov cmem.Ptr, count uint64, off int64, flags uint32) (int64, error) {
	return a.vector(route.Read, id, iov, count, off, flags)
}

// Writev is cuFileWritev.
func (a *API) Writev(id handle.ID, iov cmem.Ptr, count uint64, off int64, flags uint32) (int64, error) {
	return a.vector(route.Write, id, iov, count, off, flags)
}

// vector goes from buffer to buffer until one is not filled. An error after
// bytes have moved is left to the next call, as with readv.
func (a *API) vector(dir route.Dir, id handle.ID, iov cmem.Ptr, count uint64, off int64, flags uint32) (int64, error) {
	if iov == 0 || count > maxVec || flags != 0 {
		return 0, unix.EINVAL
	}
	if _, err := a.file(id); err != nil {
		return 0, err
	}
	var total int64
	for i := range int(count) {
		v := cmem.Load[ioVec](cmem.At[ioVec](iov, i))
		if v.Len == 0 {
			continue
		}
		n, err := a.transfer(dir, id, v.Base, v.Len, off+total, 0)
		if err != nil && total == 0 {
			return 0, err
		}
		if err != nil {
			break
		}
		if total += n; uint64(n) < v.Len {
			break
		}
	}
	return total, nil
}
