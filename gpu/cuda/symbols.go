package cuda

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
)

// A symbol is a function of the driver.
type symbol struct {
	fn    dl.Func // 0 if the library lacks it
	name  string  // without the suffix of its version
	since string  // the first CUDA release that has it; empty for required functions
}

// call calls the function without a context. A missing function returns
// ErrNotSupported.
func (s *symbol) call(args ...uintptr) gpu.Code {
	if s.fn == 0 {
		return gpu.ErrNotSupported
	}
	return gpu.Code(int32(s.fn.Call(args...)))
}

// symbols are the functions that Culvert calls. The tag v2 adds the suffix _v2
// to the name: "or bare" if the name without it is the same function, "only" if
// that is an older one (mostly with 32-bit sizes), which must not be called.
// Functions with the tag since are optional.
type symbols struct {
	cuInit             symbol
	cuDriverGetVersion symbol
	cuGetErrorName     symbol
	cuGetErrorString   symbol

	cuDeviceGetCount          symbol
	cuDeviceGet               symbol
	cuDeviceGetName           symbol
	cuDeviceGetUuid           symbol `v2:"or bare"`
	cuDeviceTotalMem          symbol `v2:"only"`
	cuDeviceGetAttribute      symbol
	cuDevicePrimaryCtxRetain  symbol
	cuDevicePrimaryCtxRelease symbol `v2:"or bare"`

	cuCtxCreate_v2             symbol `since:"3.2"`  // (ctx*, flags, dev)
	cuCtxCreate_v4             symbol `since:"12.5"` // (ctx*, params*, flags, dev)
	cuCtxDestroy               symbol `v2:"only"`
	cuCtxGetCurrent            symbol
	cuCtxSetCurrent            symbol
	cuCtxPushCurrent           symbol `v2:"only"`
	cuCtxPopCurrent            symbol `v2:"only"`
	cuCtxSynchronize           symbol
	cuCtxEnablePeerAccess      symbol `since:"4.0"`
	cuFlushGPUDirectRDMAWrites symbol `since:"11.3"`

	cuMemGetInfo              symbol `v2:"only"`
	cuMemAlloc                symbol `v2:"only"`
	cuMemFree                 symbol `v2:"only"`
	cuMemHostAlloc            symbol
	cuMemFreeHost             symbol
	cuMemAllocManaged         symbol
	cuMemHostRegister         symbol `v2:"or bare"`
	cuMemHostUnregister       symbol
	cuMemHostGetDevicePointer symbol `v2:"only"`
	cuMemGetAddressRange      symbol `v2:"only"`
	cuPointerGetAttribute     symbol `since:"4.0"`
	cuPointerGetAttributes    symbol
	cuPointerSetAttribute     symbol
	cuIpcGetMemHandle         symbol

	cuMemGetAllocationGranularity  symbol `since:"10.2"`
	cuMemCreate                    symbol `since:"10.2"`
	cuMemRelease                   symbol `since:"10.2"`
	cuMemAddressReserve            symbol `since:"10.2"`
	cuMemAddressFree               symbol `since:"10.2"`
	cuMemMap                       symbol `since:"10.2"`
	cuMemUnmap                     symbol `since:"10.2"`
	cuMemSetAccess                 symbol `since:"10.2"`
	cuMemRetainAllocationHandle    symbol `since:"11.0"`
	cuMemExportToShareableHandle   symbol `since:"10.2"`
	cuMemImportFromShareableHandle symbol `since:"10.2"`
	cuMemGetHandleForAddressRange  symbol `since:"11.7"`

	cuMemcpy     symbol
	cuMemcpyHtoD symbol `v2:"only"`
	cuMemcpyDtoH symbol `v2:"only"`
	cuMemsetD8   symbol `v2:"only"`
	cuMemsetD16  symbol `v2:"only"`
	cuMemsetD32  symbol `v2:"only"`

	cuStreamCreate       symbol
	cuStreamDestroy      symbol `v2:"only"`
	cuStreamSynchronize  symbol
	cuStreamQuery        symbol
	cuStreamWaitEvent    symbol
	cuStreamWriteValue32 symbol `v2:"or bare" since:"8.0"`
	cuStreamWriteValue64 symbol `v2:"or bare" since:"9.0"`
	cuStreamWaitValue32  symbol `v2:"or bare" since:"8.0"`
	cuStreamWaitValue64  symbol `v2:"or bare" since:"9.0"`
	cuStreamIsCapturing  symbol `since:"10.0"`
	cuStreamGetFlags     symbol `since:"5.0"`
	cuLaunchHostFunc     symbol `since:"10.0"`
	cuMemcpyAsync        symbol
	cuMemcpyPeerAsync    symbol `since:"4.0"`
	cuMemsetD8Async      symbol
	cuMemsetD16Async     symbol
	cuMemsetD32Async     symbol
	cuLaunchKernel       symbol

	cuEventCreate      symbol
	cuEventDestroy     symbol `v2:"only"`
	cuEventRecord      symbol
	cuEventQuery       symbol
	cuEventSynchronize symbol
	cuEventElapsedTime symbol

	cuModuleLoadDataEx  symbol
	cuModuleUnload      symbol
	cuModuleGetFunction symbol
}

// resolve finds all functions. Its error names the first missing one that is
// not optional.
func (s *symbols) resolve(lib *dl.Library) error {
	var missing error
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		fn, err := find(lib, exportedNames(f))
		since := f.Tag.Get("since")
		if err != nil && since == "" && missing == nil {
			missing = err
		}
		name, _, _ := strings.Cut(f.Name, "_v")
		*symbolAt(v.Field(i)) = symbol{fn, name, since}
	}
	return missing
}

// exportedNames lists the names of a function in the library, the newest first.
func exportedNames(f reflect.StructField) []string {
	switch f.Tag.Get("v2") {
	case "only":
		return []string{f.Name + "_v2"}
	case "or bare":
		return []string{f.Name + "_v2", f.Name}
	}
	return []string{f.Name}
}

func find(lib *dl.Library, names []string) (dl.Func, error) {
	var first error
	for _, name := range names {
		fn, err := lib.Sym(name)
		if err == nil {
			return fn, nil
		}
		first = cmp.Or(first, err)
	}
	return 0, first
}
