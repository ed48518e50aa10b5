package nvrm

import "fmt"

// A Status is an NV_STATUS: what the resource manager answers. It is an error,
// so that errors.Is finds it in whatever wraps it.
type Status uint32

// The statuses that the client acts upon or its twin gives, from
// nvstatuscodes.h. The driver may answer others.
const (
	NV_OK                           Status = 0x0
	NV_ERR_CARD_NOT_PRESENT         Status = 0x5
	NV_ERR_GPU_IS_LOST              Status = 0xf
	NV_ERR_INSERT_DUPLICATE_NAME    Status = 0x19
	NV_ERR_INSUFFICIENT_RESOURCES   Status = 0x1a
	NV_ERR_INSUFFICIENT_PERMISSIONS Status = 0x1b
	NV_ERR_INVALID_ARGUMENT         Status = 0x1f
	NV_ERR_INVALID_BASE             Status = 0x20
	NV_ERR_INVALID_CLASS            Status = 0x22
	NV_ERR_INVALID_CLIENT           Status = 0x23
	NV_ERR_INVALID_DEVICE           Status = 0x26
	NV_ERR_INVALID_LIMIT            Status = 0x2e
	NV_ERR_INVALID_OBJECT_HANDLE    Status = 0x33
	NV_ERR_INVALID_OBJECT_PARENT    Status = 0x36
	NV_ERR_INVALID_PARAM_STRUCT     Status = 0x3a
	NV_ERR_INVALID_PARAMETER        Status = 0x3b
	NV_ERR_INVALID_POINTER          Status = 0x3d
	NV_ERR_INVALID_STATE            Status = 0x40
	NV_ERR_NO_MEMORY                Status = 0x51
	NV_ERR_NOT_SUPPORTED            Status = 0x56
	NV_ERR_OBJECT_NOT_FOUND         Status = 0x57
	NV_ERR_OUT_OF_RANGE             Status = 0x5b
	NV_ERR_STATE_IN_USE             Status = 0x63
	NV_ERR_GENERIC                  Status = 0xffff
)

// Name is NVIDIA's name for the status.
func (s Status) Name() string {
	if n, ok := statusNames[s]; ok {
		return n
	}
	return fmt.Sprintf("NV_STATUS_%#x", uint32(s))
}

// Error gives the name and the number: both are searched for.
func (s Status) Error() string { return fmt.Sprintf("%s (%#x)", s.Name(), uint32(s)) }

// Err is nil for NV_OK and the status for everything else: a warning too means
// that the resource manager did not do quite what was asked.
func (s Status) Err() error {
	if s == NV_OK {
		return nil
	}
	return s
}
