package main

import (
	"bytes"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// runtimeNames are the runtime's names for the codes that it shares with the
// driver, and for the few that it has alone.
var runtimeNames = []struct {
	code    gpu.Code
	name    string
	message string // of those that the driver does not have
}{
	{code: gpu.Success, name: "cudaSuccess"},
	{code: gpu.ErrInvalidValue, name: "cudaErrorInvalidValue"},
	{code: gpu.ErrOutOfMemory, name: "cudaErrorMemoryAllocation"},
	{code: gpu.ErrNotInitialized, name: "cudaErrorInitializationError"},
	{code: gpu.ErrDeinitialized, name: "cudaErrorCudartUnloading"},
	{12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
	{21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
	{code: gpu.ErrStubLibrary, name: "cudaErrorStubLibrary"},
	{35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
	{98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
	{code: gpu.ErrNoDevice, name: "cudaErrorNoDevice"},
	{code: gpu.ErrInvalidDevice, name: "cudaErrorInvalidDevice"},
	{code: gpu.ErrInvalidImage, name: "cudaErrorInvalidKernelImage"},
	{code: gpu.ErrInvalidContext, name: "cudaErrorDeviceUninitialized"},
	{code: gpu.ErrMapFailed, name: "cudaErrorMapBufferObjectFailed"},
	{code: gpu.ErrAlreadyMapped, name: "cudaErrorAlreadyMapped"},
	{code: gpu.ErrNoBinaryForGPU, name: "cudaErrorNoKernelImageForDevice"},
	{code: gpu.ErrAlreadyAcquired, name: "cudaErrorAlreadyAcquired"},
	{code: gpu.ErrNotMapped, name: "cudaErrorNotMapped"},
	{code: gpu.ErrInvalidPTX, name: "cudaErrorInvalidPtx"},
	{code: gpu.ErrUnsupportedPTXVersion, name: "cudaErrorUnsupportedPtxVersion"},
	{code: gpu.ErrInvalidSource, name: "cudaErrorInvalidSource"},
	{code: gpu.ErrFileNotFound, name: "cudaErrorFileNotFound"},
	{code: gpu.ErrOperatingSystem, name: "cudaErrorOperatingSystem"},
	{code: gpu.ErrInvalidHandle, name: "cudaErrorInvalidResourceHandle"},
	{code: gpu.ErrIllegalState, name: "cudaErrorIllegalState"},
	{code: gpu.ErrNotFound, name: "cudaErrorSymbolNotFound"},
	{code: gpu.ErrNotReady, name: "cudaErrorNotReady"},
	{code: gpu.ErrIllegalAddress, name: "cudaErrorIllegalAddress"},
	{code: gpu.ErrLaunchOutOfResources, name: "cudaErrorLaunchOutOfResources"},
	{code: gpu.ErrLaunchTimeout, name: "cudaErrorLaunchTimeout"},
	{code: gpu.ErrPeerAccessAlreadyEnabled, name: "cudaErrorPeerAccessAlreadyEnabled"},
	{code: gpu.ErrPrimaryContextActive, name: "cudaErrorSetOnActiveProcess"},
	{code: gpu.ErrContextDestroyed, name: "cudaErrorContextIsDestroyed"},
	{code: gpu.ErrAssert, name: "cudaErrorAssert"},
	{code: gpu.ErrHostMemoryAlreadyRegistered, name: "cudaErrorHostMemoryAlreadyRegistered"},
	{code: gpu.ErrHostMemoryNotRegistered, name: "cudaErrorHostMemoryNotRegistered"},
	{code: gpu.ErrMisalignedAddress, name: "cudaErrorMisalignedAddress"},
	{code: gpu.ErrInvalidAddressSpace, name: "cudaErrorInvalidAddressSpace"},
	{code: gpu.ErrLaunchFailed, name: "cudaErrorLaunchFailure"},
	{code: gpu.ErrNotPermitted, name: "cudaErrorNotPermitted"},
	{code: gpu.ErrNotSupported, name: "cudaErrorNotSupported"},
	{code: gpu.ErrSystemNotReady, name: "cudaErrorSystemNotReady"},
	{code: gpu.ErrSystemDriverMismatch, name: "cudaErrorSystemDriverMismatch"},
	{code: gpu.ErrUnknown, name: "cudaErrorUnknown"},
}

// errorsHeader gives C the names and messages of package gpu. They are C's own
// strings because callers keep the pointers, also in a forked child.
func errorsHeader() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n\n/* X(code, driver's name, message) */\n#define CULVERT_DRIVER_ERRORS(X) \\\n", notice)
	for c := gpu.Success; c <= gpu.ErrUnknown; c++ {
		if c.Known() {
			fmt.Fprintf(&b, "\tX(%d, %q, %q) \\\n", c, c.Name(), c.Message())
		}
	}
	fmt.Fprintf(&b, "\n\n/* X(code, runtime's name, message) */\n#define CULVERT_RUNTIME_ERRORS(X) \\\n")
	for _, r := range runtimeNames {
		message := r.message
		if message == "" {
			message = r.code.Message()
		}
		fmt.Fprintf(&b, "\tX(%d, %q, %q) \\\n", r.code, r.name, message)
	}
	b.WriteString("\n")
	return b.Bytes()
}
