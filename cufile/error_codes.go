package cufile

import "fmt"

// A Code is a CUfileOpError. It is an error: errors.Is(err, cufile.InvalidValue)
// works on whatever wraps it.
type Code int32

// The codes that Culvert returns.
const (
	Success                  Code = 0
	DriverNotInitialized     Code = 5001
	DriverInvalidProps       Code = 5002
	DriverUnsupportedLimit   Code = 5003
	DriverClosing            Code = 5006
	PlatformNotSupported     Code = 5007
	IONotSupported           Code = 5008
	CUDADriverError          Code = 5011
	CUDAPointerInvalid       Code = 5012
	CUDAMemoryTypeInvalid    Code = 5013
	CUDAPointerRangeError    Code = 5014
	InvalidMappingRange      Code = 5017
	InvalidFileType          Code = 5018
	InvalidFileOpenFlag      Code = 5019
	InvalidValue             Code = 5022
	MemoryAlreadyRegistered  Code = 5023
	MemoryNotRegistered      Code = 5024
	DriverAlreadyOpen        Code = 5026
	HandleNotRegistered      Code = 5027
	HandleAlreadyRegistered  Code = 5028
	DeviceNotFound           Code = 5029
	InternalError            Code = 5030
	NVFSSetupError           Code = 5033
	BatchFull                Code = 5037
	InternalBatchSubmitError Code = 5040
	NoMemError               Code = 5043
	IOError                  Code = 5044
	InvalidContextError      Code = 5047
)

// codeNames are cuFile's names, without CU_FILE_, by code less 5000. 5021 and 5032
// are unused.
var codeNames = [...]string{
	1:  "DRIVER_NOT_INITIALIZED",
	2:  "DRIVER_INVALID_PROPS",
	3:  "DRIVER_UNSUPPORTED_LIMIT",
	4:  "DRIVER_VERSION_MISMATCH",
	5:  "DRIVER_VERSION_READ_ERROR",
	6:  "DRIVER_CLOSING",
	7:  "PLATFORM_NOT_SUPPORTED",
	8:  "IO_NOT_SUPPORTED",
	9:  "DEVICE_NOT_SUPPORTED",
	10: "NVFS_DRIVER_ERROR",
	11: "CUDA_DRIVER_ERROR",
	12: "CUDA_POINTER_INVALID",
	13: "CUDA_MEMORY_TYPE_INVALID",
	14: "CUDA_POINTER_RANGE_ERROR",
	15: "CUDA_CONTEXT_MISMATCH",
	16: "INVALID_MAPPING_SIZE",
	17: "INVALID_MAPPING_RANGE",
	18: "INVALID_FILE_TYPE",
	19: "INVALID_FILE_OPEN_FLAG",
	20: "DIO_NOT_SET",
	22: "INVALID_VALUE",
	23: "MEMORY_ALREADY_REGISTERED",
	24: "MEMORY_NOT_REGISTERED",
	25: "PERMISSION_DENIED",
	26: "DRIVER_ALREADY_OPEN",
	27: "HANDLE_NOT_REGISTERED",
	28: "HANDLE_ALREADY_REGISTERED",
	29: "DEVICE_NOT_FOUND",
	30: "INTERNAL_ERROR",
	31: "GETNEWFD_FAILED",
	33: "NVFS_SETUP_ERROR",
	34: "IO_DISABLED",
	35: "BATCH_SUBMIT_FAILED",
	36: "GPU_MEMORY_PINNING_FAILED",
	37: "BATCH_FULL",
	38: "ASYNC_NOT_SUPPORTED",
	39: "INTERNAL_BATCH_SETUP_ERROR",
	40: "INTERNAL_BATCH_SUBMIT_ERROR",
	41: "INTERNAL_BATCH_GETSTATUS_ERROR",
	42: "INTERNAL_BATCH_CANCEL_ERROR",
	43: "NOMEM_ERROR",
	44: "IO_ERROR",
	45: "INTERNAL_BUF_REGISTER_ERROR",
	46: "HASH_OPR_ERROR",
	47: "INVALID_CONTEXT_ERROR",
	48: "NVFS_INTERNAL_DRIVER_ERROR",
	49: "BATCH_NOCOMPAT_ERROR",
	50: "IO_MAX_ERROR",
}

// Name is cuFile's name of the code.
func (c Code) Name() string {
	if c == Success {
		return "CU_FILE_SUCCESS"
	}
	if i := int(c) - 5000; i > 0 && i < len(codeNames) && codeNames[i] != "" {
		return "CU_FILE_" + codeNames[i]
	}
	return fmt.Sprintf("CU_FILE_%d", int32(c))
}

func (c Code) Error() string { return fmt.Sprintf("%s (%d)", c.Name(), int32(c)) }
