package cuda

import (
	"sync"

	"github.com/culvert-io/culvert/gpu"
)

// bufferIDs is memory for the driver's answers: BufferID is called for every
// transfer and must not allocate.
var bufferIDs = sync.Pool{New: func() any { return new(uint64) }}

// BufferID is the number of the allocation at a, which no other allocation of
// the process has or will have. It costs much less than Pointer.
func (d *Device) BufferID(a gpu.Addr) (uint64, error) {
	v := bufferIDs.Get().(*uint64)
	defer bufferIDs.Put(v)
	*v = 0
	s := &d.symbols.cuPointerGetAttribute
	if c := d.call(s, ref(v), pointerBufferID, uintptr(a)); c != gpu.Success {
		return 0, d.fail(s, c, "", "BUFFER_ID", a)
	}
	return *v, nil
}
