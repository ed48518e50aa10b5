// Package vendor calls NVIDIA's own libcufile: as the route "vendor" where it
// would really be direct, and as the peer that benchmarks are measured against.
// It is opened by absolute path, and never is our own library taken for it.
package vendor

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
)

// Marker is the symbol by which our own libcufile is known.
const Marker = "culvert_marker"

// ErrOwnLibrary means that the library at the path is Culvert's.
var ErrOwnLibrary = errors.New("this libcufile is Culvert's own, not NVIDIA's")

// places are where NVIDIA's packages put the library.
var places = []string{
	"/usr/local/cuda/lib64/libcufile.so.0",
	"/usr/local/cuda/targets/x86_64-linux/lib/libcufile.so.0",
	"/usr/local/cuda/targets/sbsa-linux/lib/libcufile.so.0",
	"/usr/local/cuda-*/targets/*/lib/libcufile.so.0",
	"/usr/lib/x86_64-linux-gnu/libcufile.so.0",
	"/usr/lib/aarch64-linux-gnu/libcufile.so.0",
	"/usr/lib64/libcufile.so.0",
}

// Find is the path of the first libcufile in the usual places, or an error that
// names them.
func Find() (string, error) {
	for _, pattern := range places {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("no libcufile.so.0 of NVIDIA's in %s", strings.Join(places, ", "))
}

// A Library is NVIDIA's libcufile with its driver open.
type Library struct {
	lib                              *dl.Library
	handleRegister, handleDeregister dl.Func
	bufRegister, bufDeregister       dl.Func
	read, write, driverClose         dl.Func
}

// Open loads the library at an absolute path and opens its driver. A CUDA
// context must exist.
func Open(path string) (*Library, error) {
	lib, err := dl.OpenPrivate(path)
	if err != nil {
		return nil, err
	}
	l := &Library{lib: lib}
	if err := l.resolve(); err != nil {
		return nil, errors.Join(err, lib.Close())
	}
	open, err := lib.Sym("cuFileDriverOpen")
	if err == nil {
		err = status("cuFileDriverOpen", open.Call())
	}
	if err != nil {
		return nil, errors.Join(err, lib.Close())
	}
	return l, nil
}

func (l *Library) resolve() (err error) {
	if l.lib.Has(Marker) {
		return fmt.Errorf("%s: %w", l.lib.Path(), ErrOwnLibrary)
	}
	for name, f := range map[string]*dl.Func{
		"cuFileHandleRegister":   &l.handleRegister,
		"cuFileHandleDeregister": &l.handleDeregister,
		"cuFileBufRegister":      &l.bufRegister,
		"cuFileBufDeregister":    &l.bufDeregister,
		"cuFileRead":             &l.read,
		"cuFileWrite":            &l.write,
		"cuFileDriverClose_v2":   &l.driverClose,
	} {
		if *f, err = l.lib.Sym(name); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the driver. The library stays loaded: it cannot be unloaded.
func (l *Library) Close() error { return status("cuFileDriverClose", l.driverClose.Call()) }

// A Status is a CUfileError_t that is not success.
type Status struct {
	Call string
	Code int32
	CUDA gpu.Code
}

func (s *Status) Error() string {
	text := fmt.Sprintf("%s: cuFile error %d", s.Call, s.Code)
	if s.CUDA != gpu.Success {
		text += ": " + s.CUDA.Error()
	}
	return text
}

// status decodes a CUfileError_t from the register it is returned in.
func status(call string, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	return &Status{call, int32(r), gpu.Code(int32(r >> 32))}
}

// descr is CUfileDescr_t.
type descr struct {
	kind int32
	_    [4]byte
	fd   int32
	_    [4]byte
	_    uintptr // fs_ops
}

const opaqueFD = 1 // CU_FILE_HANDLE_TYPE_OPAQUE_FD

// A Handle is a file registered with the library.
type Handle struct {
	l *Library
	h uintptr
}

// Register registers a descriptor.
func (l *Library) Register(fd int) (*Handle, error) {
	h := new(uintptr)
	d := &descr{kind: opaqueFD, fd: int32(fd)}
	err := status("cuFileHandleRegister", l.handleRegister.Call(dl.Ref(h), dl.Ref(d)))
	runtime.KeepAlive(d)
	if err != nil {
		return nil, err
	}
	return &Handle{l, *h}, nil
}

// Close deregisters the descriptor.
func (h *Handle) Close() { h.l.handleDeregister.Call(h.h) }

// RegisterBuffer and DeregisterBuffer are cuFileBufRegister and its inverse.
func (l *Library) RegisterBuffer(base gpu.Addr, n uint64) error {
	return status("cuFileBufRegister", l.bufRegister.Call(uintptr(base), uintptr(n), 0))
}

// DeregisterBuffer takes the base that was registered.
func (l *Library) DeregisterBuffer(base gpu.Addr) error {
	return status("cuFileBufDeregister", l.bufDeregister.Call(uintptr(base)))
}

// Read is cuFileRead; Write is cuFileWrite. A CUDA context must be current on
// the calling thread.
func (h *Handle) Read(mem gpu.Span, off int64) (int64, error) {
	return h.transfer("cuFileRead", h.l.read, mem, off)
}

// Write is the mirror of Read.
func (h *Handle) Write(mem gpu.Span, off int64) (int64, error) {
	return h.transfer("cuFileWrite", h.l.write, mem, off)
}

// transfer knows both of the library's ways to fail: -1 with an errno or a 5xxx
// code in errno, and a negative 5xxx code.
func (h *Handle) transfer(call string, f dl.Func, mem gpu.Span, off int64) (int64, error) {
	r, errno := f.CallErrno(h.h, uintptr(mem.Base), uintptr(mem.Len), uintptr(off), uintptr(mem.Off))
	n := int64(r)
	switch {
	case n >= 0:
		return n, nil
	case n < -1:
		return 0, &Status{Call: call, Code: int32(-n)}
	case errno > 5000:
		return 0, &Status{Call: call, Code: int32(errno)}
	}
	return 0, fmt.Errorf("%s: %w", call, syscall.Errno(errno))
}
