package gpu

import "fmt"

// A Code is a CUresult: what a driver answers. It is an error, so that
// errors.Is(err, gpu.ErrOutOfMemory) works on whatever wraps it.
type Code int32

// The codes that Culvert gives or acts upon. A driver may answer others; they
// keep their number.
const (
	Success                        Code = 0
	ErrInvalidValue                Code = 1
	ErrOutOfMemory                 Code = 2
	ErrNotInitialized              Code = 3
	ErrDeinitialized               Code = 4
	ErrStubLibrary                 Code = 34
	ErrNoDevice                    Code = 100
	ErrInvalidDevice               Code = 101
	ErrInvalidImage                Code = 200
	ErrInvalidContext              Code = 201
	ErrMapFailed                   Code = 205
	ErrAlreadyMapped               Code = 208
	ErrNoBinaryForGPU              Code = 209
	ErrAlreadyAcquired             Code = 210
	ErrNotMapped                   Code = 211
	ErrInvalidPTX                  Code = 218
	ErrUnsupportedPTXVersion       Code = 222
	ErrInvalidSource               Code = 300
	ErrFileNotFound                Code = 301
	ErrOperatingSystem             Code = 304
	ErrInvalidHandle               Code = 400
	ErrIllegalState                Code = 401
	ErrNotFound                    Code = 500
	ErrNotReady                    Code = 600
	ErrIllegalAddress              Code = 700
	ErrLaunchOutOfResources        Code = 701
	ErrLaunchTimeout               Code = 702
	ErrPeerAccessAlreadyEnabled    Code = 704
	ErrPrimaryContextActive        Code = 708
	ErrContextDestroyed            Code = 709
	ErrAssert                      Code = 710
	ErrHostMemoryAlreadyRegistered Code = 712
	ErrHostMemoryNotRegistered     Code = 713
	ErrMisalignedAddress           Code = 716
	ErrInvalidAddressSpace         Code = 717
	ErrLaunchFailed                Code = 719
	ErrNotPermitted                Code = 800
	ErrNotSupported                Code = 801
	ErrSystemNotReady              Code = 802
	ErrSystemDriverMismatch        Code = 803
	ErrUnknown                     Code = 999
)

type codeText struct{ name, message string }

var codes = map[Code]codeText{
	Success:                        {"CUDA_SUCCESS", "no error"},
	ErrInvalidValue:                {"CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	ErrOutOfMemory:                 {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	ErrNotInitialized:              {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	ErrDeinitialized:               {"CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	ErrStubLibrary:                 {"CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
	ErrNoDevice:                    {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	ErrInvalidDevice:               {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	ErrInvalidImage:                {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
	ErrInvalidContext:              {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	ErrMapFailed:                   {"CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
	ErrAlreadyMapped:               {"CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
	ErrNoBinaryForGPU:              {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
	ErrAlreadyAcquired:             {"CUDA_ERROR_ALREADY_ACQUIRED", "resource already acquired"},
	ErrNotMapped:                   {"CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
	ErrInvalidPTX:                  {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	ErrUnsupportedPTXVersion:       {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
	ErrInvalidSource:               {"CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
	ErrFileNotFound:                {"CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
	ErrOperatingSystem:             {"CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
	ErrInvalidHandle:               {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	ErrIllegalState:                {"CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
	ErrNotFound:                    {"CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	ErrNotReady:                    {"CUDA_ERROR_NOT_READY", "device not ready"},
	ErrIllegalAddress:              {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	ErrLaunchOutOfResources:        {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
	ErrLaunchTimeout:               {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
	ErrPeerAccessAlreadyEnabled:    {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	ErrPrimaryContextActive:        {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process"},
	ErrContextDestroyed:            {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	ErrAssert:                      {"CUDA_ERROR_ASSERT", "device-side assert triggered"},
	ErrHostMemoryAlreadyRegistered: {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
	ErrHostMemoryNotRegistered:     {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
	ErrMisalignedAddress:           {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
	ErrInvalidAddressSpace:         {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space"},
	ErrLaunchFailed:                {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	ErrNotPermitted:                {"CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	ErrNotSupported:                {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	ErrSystemNotReady:              {"CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
	ErrSystemDriverMismatch:        {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
	ErrUnknown:                     {"CUDA_ERROR_UNKNOWN", "unknown error"},
}

// Name is CUDA's name for the code.
func (c Code) Name() string {
	if t, ok := codes[c]; ok {
		return t.name
	}
	return fmt.Sprintf("CUDA_ERROR_%d", int32(c))
}

// Message is CUDA's text for the code.
func (c Code) Message() string {
	if t, ok := codes[c]; ok {
		return t.message
	}
	return "unrecognized error code"
}

func (c Code) Error() string { return c.Name() + ": " + c.Message() }

// Known reports whether the code has a name here.
func (c Code) Known() bool { _, ok := codes[c]; return ok }
