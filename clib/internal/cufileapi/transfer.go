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
	mem, err := span(base, bufOff, n)
	if err != nil {
		return 0, err
	}
	return a.move(dir, f, mem, off)
}

// span is the memory of a transfer.
func span(base cmem.Ptr, off int64, n uint64) (gpu.Span, error) {
	switch {
	case base == 0:
		return gpu.Span{}, unix.EINVAL
	case off < 0:
		return gpu.Span{}, unix.EIO // as for any address outside of the allocation
	}
	return gpu.Span{Base: gpu.Addr(base), Off: uint64(off), Len: n}, nil
}

// Errno is the errno of a failed transfer: the operating system's if there is one, EIO
// if memory or CUDA failed, and otherwise cuFile's code, as in NVIDIA's library. Freed memory
// has cuFile's code on every route, also if a kernel module found it.
func Errno(err error) int32 {
	if errors.Is(err, route.ErrFreed) {
		return int32(cufile.CUDAPointerInvalid)
	}
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return int32(e)
	}
	switch code := cufile.CodeOf(err); code {
	case cufile.CUDAPointerRangeError, cufile.CUDADriverError, cufile.IOError:
		return int32(unix.EIO)
	default:
		return int32(code)
	}
}

// move transfers one range and counts it where statistics are on.
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
	a.transferred(&r, mem.Base, err)
	if err != nil && !partial(r.Bytes, err) {
		return 0, err
	}
	return r.Bytes, nil
}

// partial reports whether the operating system stopped a transfer in the middle,
// for example on a full disk. As with pwrite, the caller gets the bytes moved, and
// the error from the next call.
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
		return nil, unix.EINVAL // never a handle: as NVIDIA's library
	}
	return f, nil
}

// ioVec is CUfileIOVec_t.
type ioVec struct {
	_    structs.HostLayout
	Base cmem.Ptr
	Len  uint64
}

// maxVec is the kernel's limit for readv.
const maxVec = 1024

// Readv is cuFileReadv: one range of the file into several buffers. The flags are
// reserved, and ignored as by NVIDIA's library.
func (a *API) Readv(id handle.ID, iov cmem.Ptr, count uint64, off int64, _ uint32) (int64, error) {
	return a.vector(route.Read, id, iov, count, off)
}

// Writev is cuFileWritev.
func (a *API) Writev(id handle.ID, iov cmem.Ptr, count uint64, off int64, _ uint32) (int64, error) {
	return a.vector(route.Write, id, iov, count, off)
}

// vector moves all buffers in one call. If the call fails before any byte has
// moved, they are moved one by one: as with readv, buffers before an invalid one
// count.
func (a *API) vector(dir route.Dir, id handle.ID, iov cmem.Ptr, count uint64, off int64) (int64, error) {
	if iov == 0 || count == 0 || count > maxVec || off < 0 {
		return 0, unix.EINVAL
	}
	f, err := a.file(id)
	if err != nil {
		return 0, err
	}
	mem, err := loadVec(iov, int(count))
	if err != nil || len(mem) == 0 {
		return 0, err
	}
	var r route.Receipt
	if dir == route.Read {
		r, err = f.ReadvAt(context.Background(), mem, off)
	} else {
		r, err = f.WritevAt(context.Background(), mem, off)
	}
	if err != nil && r.Bytes == 0 {
		return a.oneByOne(dir, f, mem, off)
	}
	a.transferred(&r, mem[0].Base, err)
	return r.Bytes, nil // an error after bytes have moved is left to the next call
}

// loadVec reads the buffers up to the first without an address.
func loadVec(iov cmem.Ptr, count int) (mem []gpu.Span, err error) {
	for _, v := range cmem.LoadAll[ioVec](iov, count) {
		switch {
		case v.Len == 0:
		case v.Base != 0:
			mem = append(mem, gpu.Span{Base: gpu.Addr(v.Base), Len: v.Len})
		case len(mem) == 0:
			return nil, unix.EINVAL
		default:
			return mem, nil
		}
	}
	return mem, nil
}

// oneByOne moves buffers until one fails or is not filled.
func (a *API) oneByOne(dir route.Dir, f *cufile.File, mem []gpu.Span, off int64) (total int64, err error) {
	for _, m := range mem {
		n, err := a.move(dir, f, m, off+total)
		if err != nil && total == 0 {
			return 0, err
		}
		if total += n; err != nil || uint64(n) < m.Len {
			break
		}
	}
	return total, nil
}
