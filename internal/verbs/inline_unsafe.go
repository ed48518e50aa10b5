package verbs

import (
	"sync/atomic"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/rdma"
)

// gather copies local ranges, whose keys do not count for inline data.
func gather(to []byte, sge []rdma.SGE) []byte {
	for _, g := range sge {
		if g.Len > 0 {
			to = append(to, gpu.HostBytes(gpu.Addr(g.Addr), uint64(g.Len))...)
		}
	}
	return to
}

// word is 8 aligned bytes as a word that the CPU changes atomically.
func word(b []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b))) }
