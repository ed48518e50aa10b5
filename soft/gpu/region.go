package gpu

import "github.com/culvert-io/culvert/gpu"

// A region is a range of addresses that the driver knows: an allocation, an import, a
// mapping or a registration.
type region struct {
	kind   gpu.Kind
	base   gpu.Addr
	size   uint64 // as requested
	flags  gpu.Flags
	dev    *Device // the owner
	blk    *block
	off    uint64 // of base in the block
	sync   bool   // SYNC_MEMOPS
	mapped bool   // by Device.Map, into a reservation: one range with adjacent mappings

	opens   int     // how often an IPC handle of another process was opened for it
	opening opening // of such a region
}

func (r *region) end() gpu.Addr { return r.base + gpu.Addr(r.size) }

// pointerKind is the kind that the attributes of a pointer show. They tell virtual memory
// by its handle types: without one it looks like plain device memory.
func (r *region) pointerKind() gpu.Kind {
	if r.kind == gpu.KindVirtual && r.blk.private {
		return gpu.KindDevice
	}
	return r.kind
}

// covers reports whether [a, a+n) lies inside.
func (r *region) covers(a gpu.Addr, n uint64) bool {
	off := uint64(a - r.base)
	return a >= r.base && off <= r.size && n <= r.size-off
}
