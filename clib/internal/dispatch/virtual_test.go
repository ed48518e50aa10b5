package dispatch

import (
	"testing"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
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

// A reservation of which the beginning is mapped can be registered: what is mapped is
// registered memory, what is mapped later is used as it is, and the rest is not there.
func TestRegisterReservation(t *testing.T) {
	const grain = 2 << 20
	p := start(t)
	p.must("cudaFree", 0)
	p.must("cuFileDriverOpen")
	prop := &[4]uint64{1 | 1<<32, 1, 0, 0}
	access := &[3]int32{1, 0, 3}
	at := new(uint64)
	p.must("cuMemAddressReserve", out(at), 4*grain, 0, 0, 0)
	grow := func(i uint64) {
		h := new(handle.ID)
		p.must("cuMemCreate", out(h), grain, out(prop), 0)
		p.must("cuMemMap", *at+i*grain, grain, 0, uint64(*h), 0)
		p.must("cuMemSetAccess", *at+i*grain, grain, out(access), 1)
		p.must("cuMemRelease", uint64(*h))
	}
	content := []byte("memory that grows")
	f := p.file(content)
	read := func(off uint64, want string) {
		t.Helper()
		n, _ := p.call("cuFileRead", uint64(f), *at, uint64(len(content)), 0, off)
		if want == "" {
			if n >= 0 {
				t.Errorf("a read to memory that is not there returned %d", n)
			}
			return
		}
		got := new([17]byte)
		p.must("cuMemcpyDtoH_v2", out(got), *at+off, uint64(len(got)))
		if string(got[:]) != want {
			t.Errorf("at %d there is %q", off, got)
		}
	}
	grow(0)
	p.want(int64(cufile.CUDAPointerRangeError), "cuFileBufRegister", *at, 4*grain+1, 0)
	p.must("cuFileBufRegister", *at, 4*grain, 0)
	read(100, string(content))
	read(grain, "")
	read(grain-8, "")
	grow(1)
	read(grain, string(content))
	read(grain-8, string(content))
	read(2*grain-8, "")
	p.must("cuFileBufDeregister", *at)
}

// What programs ask for before they do anything: priorities, attributes, modes.
func TestQueries(t *testing.T) {
	p := start(t)
	p.must("cudaFree", 0)
	least, greatest, got := new(int32), new(int32), new(int32)
	p.must("cuCtxGetStreamPriorityRange", out(least), out(greatest))
	if *least != 0 || *greatest != -5 {
		t.Errorf("priorities are [%d, %d]", *least, *greatest)
	}
	for asked, want := range map[int32]int32{0: 0, -2: -2, -100: -5, 7: 0} {
		s := new(handle.ID)
		p.must("cuStreamCreateWithPriority", out(s), 0, uint64(uint32(asked)))
		p.must("cuStreamGetPriority", uint64(*s), out(got))
		if *got != want {
			t.Errorf("priority %d became %d, want %d", asked, *got, want)
		}
		p.must("cuStreamDestroy_v2", uint64(*s))
	}
	const last = 161 // of CUDA 13.4
	for a := uint64(1); a <= last; a++ {
		p.must("cuDeviceGetAttribute", out(got), a, 0)
	}
	p.want(int64(gpu.ErrInvalidValue), "cuDeviceGetAttribute", out(got), last+1, 0)
	p.want(int64(gpu.ErrNotSupported), "culvert_refuse", uint64(gpu.ErrNotSupported))
	p.want(int64(gpu.ErrNotSupported), "cudaGetLastError")
	p.must("cudaGetLastError")
	p.must("cuModuleGetLoadingMode", out(got))
	if *got != 2 {
		t.Errorf("loading mode %d", *got)
	}
	a, v := new(uint64), new(uint64)
	p.must("cuMemAlloc_v2", out(a), 5000)
	for attr, want := range map[uint64]uint64{18: 5000, 19: *a, 21: 0} {
		*v = 0
		p.must("cuPointerGetAttribute", out(v), attr, *a+10)
		if *v != want {
			t.Errorf("pointer attribute %d is %#x, want %#x", attr, *v, want)
		}
	}
	p.must("cuPointerGetAttribute", out(v), 20, *a)
	if *v == 0 {
		t.Error("a block of memory has no ID")
	}
}

// TestMapsExports: DMA_BUF_MMAP_SUPPORTED is 1 only if the program's mmap knows dma-bufs.
func TestMapsExports(t *testing.T) {
	p := start(t)
	p.must("cudaFree", 0)
	got := new(int32)
	const mmapSupported = 152
	for _, maps := range []bool{false, true} {
		p.core.CUDA.MapsExports = func() bool { return maps }
		p.must("cuDeviceGetAttribute", out(got), mmapSupported, 0)
		if (*got == 1) != maps {
			t.Errorf("the attribute is %d, the program maps dma-bufs: %t", *got, maps)
		}
	}
}
