package cufile

import "fmt"

// A Code is a CUfileOpError. It is an error, so that errors.Is(err,
// cufile.InvalidValue) works on whatever wraps it.
type Code int32

// cuFile's codes. 5021 and 5032 are unused.
const (
	Success                     Code = 0
	DriverNotInitialized        Code = 5001
	DriverInvalidProps          Code = 5002
	DriverUnsupportedLimit      Code = 5003
	DriverVersionMismatch       Code = 5004
	DriverVersionReadError      Code = 5005
	DriverClosing               Code = 5006
	PlatformNotSupported        Code = 5007
	IONotSupported              Code = 5008
	DeviceNotSupported          Code = 5009
	NVFSDriverError             Code = 5010
	CUDADriverError             Code = 5011
	CUDAPointerInvalid          Code = 5012
	CUDAMemoryTypeInvalid       Code = 5013
	CUDAPointerRangeError       Code = 5014
	CUDAContextMismatch         Code = 5015
	InvalidMappingSize          Code = 5016
	InvalidMappingRange         Code = 5017
	InvalidFileType             Code = 5018
	InvalidFileOpenFlag         Code = 5019
	DIONotSet                   Code = 5020
	InvalidValue                Code = 5022
	MemoryAlreadyRegistered     Code = 5023
	MemoryNotRegistered         Code = 5024
	PermissionDenied            Code = 5025
	DriverAlreadyOpen           Code = 5026
	HandleNotRegistered         Code = 5027
	HandleAlreadyRegistered     Code = 5028
	DeviceNotFound              Code = 5029
	InternalError               Code = 5030
	GetNewFDFailed              Code = 5031
	NVFSSetupError              Code = 5033
	IODisabled                  Code = 5034
	BatchSubmitFailed           Code = 5035
	GPUMemoryPinningFailed      Code = 5036
	BatchFull                   Code = 5037
	AsyncNotSupported           Code = 5038
	InternalBatchSetupError     Code = 5039
	InternalBatchSubmitError    Code = 5040
	InternalBatchGetStatusError Code = 5041
	InternalBatchCancelError    Code = 5042
	NoMemError                  Code = 5043
	IOError                     Code = 5044
	InternalBufRegisterError    Code = 5045
	HashOprError                Code = 5046
	InvalidContextError         Code = 5047
	NVFSInternalDriverError     Code = 5048
	BatchNoCompatError          Code = 5049
	IOMaxError                  Code = 5050
)

var codeNames = map[Code]string{
	Success:                     "CU_FILE_SUCCESS",
	DriverNotInitialized:        "CU_FILE_DRIVER_NOT_INITIALIZED",
	DriverInvalidProps:          "CU_FILE_DRIVER_INVALID_PROPS",
	DriverUnsupportedLimit:      "CU_FILE_DRIVER_UNSUPPORTED_LIMIT",
	DriverVersionMismatch:       "CU_FILE_DRIVER_VERSION_MISMATCH",
	DriverVersionReadError:      "CU_FILE_DRIVER_VERSION_READ_ERROR",
	DriverClosing:               "CU_FILE_DRIVER_CLOSING",
	PlatformNotSupported:        "CU_FILE_PLATFORM_NOT_SUPPORTED",
	IONotSupported:              "CU_FILE_IO_NOT_SUPPORTED",
	DeviceNotSupported:          "CU_FILE_DEVICE_NOT_SUPPORTED",
	NVFSDriverError:             "CU_FILE_NVFS_DRIVER_ERROR",
	CUDADriverError:             "CU_FILE_CUDA_DRIVER_ERROR",
	CUDAPointerInvalid:          "CU_FILE_CUDA_POINTER_INVALID",
	CUDAMemoryTypeInvalid:       "CU_FILE_CUDA_MEMORY_TYPE_INVALID",
	CUDAPointerRangeError:       "CU_FILE_CUDA_POINTER_RANGE_ERROR",
	CUDAContextMismatch:         "CU_FILE_CUDA_CONTEXT_MISMATCH",
	InvalidMappingSize:          "CU_FILE_INVALID_MAPPING_SIZE",
	InvalidMappingRange:         "CU_FILE_INVALID_MAPPING_RANGE",
	InvalidFileType:             "CU_FILE_INVALID_FILE_TYPE",
	InvalidFileOpenFlag:         "CU_FILE_INVALID_FILE_OPEN_FLAG",
	DIONotSet:                   "CU_FILE_DIO_NOT_SET",
	InvalidValue:                "CU_FILE_INVALID_VALUE",
	MemoryAlreadyRegistered:     "CU_FILE_MEMORY_ALREADY_REGISTERED",
	MemoryNotRegistered:         "CU_FILE_MEMORY_NOT_REGISTERED",
	PermissionDenied:            "CU_FILE_PERMISSION_DENIED",
	DriverAlreadyOpen:           "CU_FILE_DRIVER_ALREADY_OPEN",
	HandleNotRegistered:         "CU_FILE_HANDLE_NOT_REGISTERED",
	HandleAlreadyRegistered:     "CU_FILE_HANDLE_ALREADY_REGISTERED",
	DeviceNotFound:              "CU_FILE_DEVICE_NOT_FOUND",
	InternalError:               "CU_FILE_INTERNAL_ERROR",
	GetNewFDFailed:              "CU_FILE_GETNEWFD_FAILED",
	NVFSSetupError:              "CU_FILE_NVFS_SETUP_ERROR",
	IODisabled:                  "CU_FILE_IO_DISABLED",
	BatchSubmitFailed:           "CU_FILE_BATCH_SUBMIT_FAILED",
	GPUMemoryPinningFailed:      "CU_FILE_GPU_MEMORY_PINNING_FAILED",
	BatchFull:                   "CU_FILE_BATCH_FULL",
	AsyncNotSupported:           "CU_FILE_ASYNC_NOT_SUPPORTED",
	InternalBatchSetupError:     "CU_FILE_INTERNAL_BATCH_SETUP_ERROR",
	InternalBatchSubmitError:    "CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR",
	InternalBatchGetStatusError: "CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR",
	InternalBatchCancelError:    "CU_FILE_INTERNAL_BATCH_CANCEL_ERROR",
	NoMemError:                  "CU_FILE_NOMEM_ERROR",
	IOError:                     "CU_FILE_IO_ERROR",
	InternalBufRegisterError:    "CU_FILE_INTERNAL_BUF_REGISTER_ERROR",
	HashOprError:                "CU_FILE_HASH_OPR_ERROR",
	InvalidContextError:         "CU_FILE_INVALID_CONTEXT_ERROR",
	NVFSInternalDriverError:     "CU_FILE_NVFS_INTERNAL_DRIVER_ERROR",
	BatchNoCompatError:          "CU_FILE_BATCH_NOCOMPAT_ERROR",
	IOMaxError:                  "CU_FILE_IO_MAX_ERROR",
}

// Name is cuFile's name for the code.
func (c Code) Name() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("CU_FILE_%d", int32(c))
}

func (c Code) Error() string { return fmt.Sprintf("%s (%d)", c.Name(), int32(c)) }
