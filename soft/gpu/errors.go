package gpu

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

// A refusal is the reason for which a call fails, without the call.
type refusal struct {
	code   gpu.Code
	detail string
}

func refuse(c gpu.Code, format string, args ...any) error {
	return &refusal{c, fmt.Sprintf(format, args...)}
}

func (r *refusal) Error() string { return r.detail }
func (r *refusal) Unwrap() error { return r.code }

// fail adds the call to a refusal.
func fail(op string, err error) error {
	if r, ok := err.(*refusal); ok {
		return gpu.Fail(op, r.code, r.detail)
	}
	return err
}
