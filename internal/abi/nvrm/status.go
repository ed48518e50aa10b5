package nvrm

import "fmt"

// A Status is an NV_STATUS, the result of a call of the resource manager. It is
// an error that errors.Is finds in any error that wraps it.
type Status uint32

// The statuses that the client handles or the emulated module returns, from
// nvstatuscodes.h. The driver may return others.
const (
	NV_OK                           Status = 0x0
	NV_ERR_INSERT_DUPLICATE_NAME    Status = 0x19
	NV_ERR_INSUFFICIENT_PERMISSIONS Status = 0x1b
	NV_ERR_INVALID_ARGUMENT         Status = 0x1f
	NV_ERR_INVALID_BASE             Status = 0x20
	NV_ERR_INVALID_CLASS            Status = 0x22
	NV_ERR_INVALID_CLIENT           Status = 0x23
	NV_ERR_INVALID_LIMIT            Status = 0x2e
	NV_ERR_INVALID_OBJECT_HANDLE    Status = 0x33
	NV_ERR_INVALID_OBJECT_PARENT    Status = 0x36
	NV_ERR_INVALID_PARAM_STRUCT     Status = 0x3a
	NV_ERR_INVALID_PARAMETER        Status = 0x3b
	NV_ERR_NO_MEMORY                Status = 0x51
	NV_ERR_NOT_SUPPORTED            Status = 0x56
	NV_ERR_OBJECT_NOT_FOUND         Status = 0x57
	NV_ERR_STATE_IN_USE             Status = 0x63
	NV_ERR_GENERIC                  Status = 0xffff
)

// Name is NVIDIA's name for the status.
func (s Status) Name() string {
	const firstWarning = 0x10001
	switch {
	case s == NV_OK:
		return "NV_OK"
	case s == NV_ERR_GENERIC:
		return "NV_ERR_GENERIC"
	case int(s) <= len(errorNames):
		return "NV_ERR_" + errorNames[s-1]
	case s >= firstWarning && int(s-firstWarning) < len(warningNames):
		return "NV_WARN_" + warningNames[s-firstWarning]
	}
	return fmt.Sprintf("NV_STATUS_%#x", uint32(s))
}

// Error has the name and the number.
func (s Status) Error() string { return fmt.Sprintf("%s (%#x)", s.Name(), uint32(s)) }

// Err is nil for NV_OK and the status otherwise, also for warnings: then the
// resource manager did something else than requested.
func (s Status) Err() error {
	if s == NV_OK {
		return nil
	}
	return s
}
