package gpu

import (
	"fmt"

	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// A Code is a CUresult, the status that a driver call returns. It is an error:
// errors.Is(err, gpu.ErrOutOfMemory) finds it in any error that wraps it.
type Code int32

// The codes that Culvert returns or handles. Other codes of a driver keep their
// number, and most have a name and a message.
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
	ErrNoBinaryForGPU              Code = 209
	ErrInvalidPTX                  Code = 218
	ErrUnsupportedPTXVersion       Code = 222
	ErrFileNotFound                Code = 301
	ErrOperatingSystem             Code = 304
	ErrInvalidHandle               Code = 400
	ErrNotFound                    Code = 500
	ErrNotReady                    Code = 600
	ErrIllegalAddress              Code = 700
	ErrContextDestroyed            Code = 709
	ErrHostMemoryAlreadyRegistered Code = 712
	ErrHostMemoryNotRegistered     Code = 713
	ErrMisalignedAddress           Code = 716
	ErrLaunchFailed                Code = 719
	ErrNotPermitted                Code = 800
	ErrNotSupported                Code = 801
	ErrSystemNotReady              Code = 802
	ErrSystemDriverMismatch        Code = 803
	ErrStreamCaptureUnsupported    Code = 900
	ErrUnknown                     Code = 999
)

// Name is CUDA's name for the code.
func (c Code) Name() string {
	if r, ok := abi.DriverResult(int32(c)); ok {
		return r.Driver
	}
	return fmt.Sprintf("CUDA_ERROR_%d", int32(c))
}

// Message is CUDA's text for the code.
func (c Code) Message() string {
	if r, ok := abi.DriverResult(int32(c)); ok {
		return r.Message
	}
	return "unrecognized error code"
}

func (c Code) Error() string { return c.Name() + ": " + c.Message() }
