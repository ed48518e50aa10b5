package dispatch

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cufileapi"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/clib/internal/verbsapi"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// A returns is a kind of C result.
type returns struct {
	// make makes the result and errno of a method's results.
	make func(c *Core, t *softcuda.Thread, n int64, err error) (value int64, errno int32)
	// null is the error for a NULL that is not allowed.
	null error
	// prepare looks up what a function needs.
	prepare func(*Core, *softcuda.Thread, softcuda.Need, uint64) (softcuda.Call, error)
}

var (
	// driverStatus is a CUresult.
	driverStatus = returns{
		make: func(_ *Core, _ *softcuda.Thread, _ int64, err error) (int64, int32) { return int64(gpu.CodeOf(err)), 0 },
		null: gpu.ErrInvalidValue,
		prepare: func(c *Core, t *softcuda.Thread, n softcuda.Need, arg uint64) (softcuda.Call, error) {
			return c.CUDA.Prepare(t, n, arg)
		},
	}
	// runtimeStatus is a cudaError_t, which the thread remembers.
	runtimeStatus = returns{
		make: func(c *Core, t *softcuda.Thread, _ int64, err error) (int64, int32) {
			return int64(c.Runtime.Status(t, err)), 0
		},
		null: gpu.ErrInvalidValue,
		prepare: func(c *Core, t *softcuda.Thread, n softcuda.Need, arg uint64) (softcuda.Call, error) {
			return c.Runtime.Prepare(t, n, arg)
		},
	}
	// fileStatus is a CUfileError_t.
	fileStatus = returns{make: makeFileStatus, null: cufile.InvalidValue}
	// fileCount is the result of a read or a write.
	fileCount = returns{make: makeFileCount}
	// errnoStatus is 0 or an errno.
	errnoStatus = returns{
		make: func(_ *Core, _ *softcuda.Thread, _ int64, err error) (int64, int32) {
			return int64(verbsapi.Errno(err)), 0
		},
		null: unix.EINVAL,
	}
	// errnoCount is a number, or -1 with errno.
	errnoCount = returns{make: makeErrnoCount, null: unix.EINVAL}
	// value is the number that the method returns, or nothing.
	value = returns{make: func(_ *Core, _ *softcuda.Thread, n int64, _ error) (int64, int32) { return n, 0 }}
)

// errNoTopology is the error of cuFileExportPCIeTopology: that of NVIDIA's library where
// it has built no topology, which it does for nvidia-fs only.
var errNoTopology = notImplemented(cufile.InternalError, "there is no topology for static routing; culvert check shows what is known")

func notImplemented(code cufile.Code, why string) error {
	return &cufile.Error{Op: "call", Object: "cuFile", Code: code, Err: errors.New("not implemented: " + why)}
}

// makeFileStatus makes a CUfileError_t: the code in the low half and, if that is
// a driver error, CUDA's in the high half.
func makeFileStatus(_ *Core, _ *softcuda.Thread, _ int64, err error) (int64, int32) {
	code := cufile.CodeOf(err)
	v := int64(uint32(code))
	if code == cufile.CUDADriverError {
		v |= int64(gpu.CodeOf(err)) << 32
	}
	return v, 0
}

// makeFileCount makes a count of bytes, or -1 with errno.
func makeFileCount(_ *Core, _ *softcuda.Thread, n int64, err error) (int64, int32) {
	if err == nil {
		return n, 0
	}
	return -1, cufileapi.Errno(err)
}

// makeErrnoCount makes a number, or -1 with errno.
func makeErrnoCount(_ *Core, _ *softcuda.Thread, n int64, err error) (int64, int32) {
	if err == nil {
		return n, 0
	}
	return -1, verbsapi.Errno(err)
}
