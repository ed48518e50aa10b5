package nvfs

import (
	"unsafe"

	"github.com/culvert-io/culvert/soft/internal/shared"
)

// newShadow makes zeroed pages with two mappings: one for the module as long as the
// mgroup lives, one for the process until Unmap.
func newShadow(n int) (kernel, user []byte, err error) {
	if kernel, err = shared.New("nvidia-fs", uint64(n)); err != nil {
		return nil, nil, err
	}
	if user, err = shared.Again(kernel); err != nil {
		_ = shared.Unmap(kernel) // the first error is the one to report
		return nil, nil, err
	}
	return kernel, user, nil
}

// Addr returns the address of the first byte.
func (v *view) Addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(v.mem))) }
