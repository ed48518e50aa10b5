package dispatch

import (
	"testing"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// Memory, addresses and access are combined in every order that CUDA allows, and
// nothing leaks.
func TestVirtualMemory(t *testing.T) {
	const grain = 2 << 20
	p := start(t)
	p.must("cudaFree", 0)
	free := func() uint64 {
		free, total := new(uint64), new(uint64)
		p.must("cuMemGetInfo_v2", out(free), out(total))
		return *free
	}
	before := free()
	prop := &[4]uint64{1 | 1<<32, 1, 0, 0} // pinned, a descriptor; on GPU 0
	access := &[3]int32{1, 0, 3}
	h, at, host := new(handle.ID), new(uint64), new([16]byte)
	p.want(int64(gpu.ErrInvalidValue), "cuMemCreate", out(h), 100, out(prop), 0)
	p.must("cuMemCreate", out(h), grain, out(prop), 0)
	p.must("cuMemAddressReserve", out(at), 2*grain, 0, 0, 0)
	p.want(int64(gpu.ErrInvalidValue), "cuMemMap", *at+4*grain, grain, 0, uint64(*h), 0) // not reserved
	p.must("cuMemMap", *at, grain, 0, uint64(*h), 0)
	p.want(int64(gpu.ErrInvalidValue), "cuMemMap", *at, grain, 0, uint64(*h), 0) // taken
	p.want(int64(gpu.ErrInvalidValue), "cuMemcpyHtoD_v2", *at, out(host), 16)    // no access yet
	p.must("cuMemSetAccess", *at, grain, out(access), 1)
	p.must("cuMemcpyHtoD_v2", *at, out(host), 16)
	p.must("cuMemRelease", uint64(*h))
	p.want(int64(gpu.ErrInvalidValue), "cuMemRelease", uint64(*h))
	p.must("cuMemcpyHtoD_v2", *at, out(host), 16) // the mapping keeps it
	p.want(int64(gpu.ErrInvalidValue), "cuMemAddressFree", *at, 2*grain)
	access[2] = 0
	p.must("cuMemSetAccess", *at, grain, out(access), 1)
	p.want(int64(gpu.ErrInvalidValue), "cuMemcpyHtoD_v2", *at, out(host), 16) // none any more
	p.must("cuMemUnmap", *at, grain)
	p.must("cuMemAddressFree", *at, 2*grain)
	if after := free(); after != before {
		t.Errorf("%d bytes were free before, %d are now", before, after)
	}
}
