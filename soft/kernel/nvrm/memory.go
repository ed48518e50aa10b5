package nvrm

import (
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/nvrm"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A memory is what a memory object stands for. Its access keeps the frames allocated.
type memory struct {
	card   *card
	access *softgpu.Access

	// CUDA's objects have no access: their allocations keep the block.
	base      gpu.Addr
	size, gen uint64
}

// clone returns the same memory for another object. It fails if a block of CUDA's was
// freed, even if its address is in use again.
func (mem *memory) clone() (*memory, nvrm.Status) {
	var access *softgpu.Access
	var err error
	if mem.access != nil {
		access, err = mem.access.Part(0, mem.access.Len())
	} else {
		access, err = mem.card.gpu.Acquire(mem.base, mem.size)
	}
	if err != nil {
		return nil, nvrm.NV_ERR_OBJECT_NOT_FOUND
	}
	if mem.access == nil && access.Generation() != mem.gen {
		access.Release()
		return nil, nvrm.NV_ERR_OBJECT_NOT_FOUND
	}
	return &memory{card: mem.card, access: access}, nvrm.NV_OK
}

func (mem *memory) drop() {
	if mem != nil && mem.access != nil {
		mem.access.Release()
	}
}
