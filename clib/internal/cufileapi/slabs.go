package cufileapi

import (
	"fmt"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/cufileconf"
)

// A slab is a size in KiB and a count, of staging memory.
type slab struct{ kb, count uint64 }

// A slabKind is one of the two lists of slabs: its keys in cufile.json and what it is
// without them.
type slabKind struct {
	sizes, counts string
	stock         []slab
}

var (
	posixSlabs = slabKind{"properties.posix_pool_slab_size_kb", "properties.posix_pool_slab_count", []slab{{4, 128}, {1024, 64}, {16384, 64}}}
	// Culvert has none, and neither has NVIDIA's library before they are set.
	gpuSlabs = slabKind{"properties.gpu_bounce_buffer_slab_config.slab_size_kb", "properties.gpu_bounce_buffer_slab_config.slab_count", nil}
)

// into adds a list that was set to the values; nil adds none.
func (k *slabKind) into(v cufileconf.Values, list []slab) {
	if list == nil {
		return
	}
	kb, count := make([]uint64, len(list)), make([]uint64, len(list))
	for i, s := range list {
		kb[i], count[i] = s.kb, s.count
	}
	v.Set(k.sizes, kb)
	v.Set(k.counts, count)
}

// of is the list that was set, or that of the configuration, or the stock.
func (k *slabKind) of(set []slab, conf cufileconf.Values) []slab {
	if set != nil {
		return set
	}
	kb, ok := conf.Numbers(k.sizes)
	count, ok2 := conf.Numbers(k.counts)
	if !ok || !ok2 || len(kb) != len(count) {
		return k.stock
	}
	list := make([]slab, len(kb))
	for i := range list {
		list[i] = slab{kb[i], count[i]}
	}
	return list
}

// setSlabs sets a list to the arrays of a call.
func (a *API) setSlabs(to *[]slab, kb, count cmem.Ptr, n int32) error {
	if err := a.closedOnly(); err != nil {
		return err
	}
	const most = 1024
	if n <= 0 || n > most {
		return &cufile.Error{Op: "set", Object: "slabs", Code: cufile.InvalidValue, Err: fmt.Errorf("%d slabs: must be from 1 to %d", n, most)}
	}
	list, sizes, counts := make([]slab, n), cmem.LoadAll[uint64](kb, int(n)), cmem.LoadAll[uint64](count, int(n))
	for i := range list {
		list[i] = slab{sizes[i], counts[i]}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	*to = list
	return nil
}

// getSlabs fills the arrays of a call, which must have the exact length.
func (a *API) getSlabs(k *slabKind, set *[]slab, kb, count cmem.Ptr, n int32) error {
	a.mu.Lock()
	list := k.of(*set, a.params.conf)
	a.mu.Unlock()
	if n <= 0 || int(n) != len(list) {
		return &cufile.Error{Op: "get", Object: "slabs", Code: cufile.InvalidValue, Err: fmt.Errorf("room for %d slabs, there are %d", n, len(list))}
	}
	for i, s := range list {
		cmem.Store(cmem.At[uint64](kb, i), s.kb)
		cmem.Store(cmem.At[uint64](count, i), s.count)
	}
	return nil
}

// SetParameterPosixPoolSlabArray is cuFileSetParameterPosixPoolSlabArray.
func (a *API) SetParameterPosixPoolSlabArray(kb, count cmem.Ptr, n int32) error {
	return a.setSlabs(&a.params.posix, kb, count, n)
}

// GetParameterPosixPoolSlabArray is cuFileGetParameterPosixPoolSlabArray.
func (a *API) GetParameterPosixPoolSlabArray(kb, count cmem.Ptr, n int32) error {
	return a.getSlabs(&posixSlabs, &a.params.posix, kb, count, n)
}

// SetParameterGpuBounceBufferSlabArray is cuFileSetParameterGpuBounceBufferSlabArray.
// Culvert has no such buffers; what is set is reported.
func (a *API) SetParameterGpuBounceBufferSlabArray(kb, count cmem.Ptr, n int32) error {
	return a.setSlabs(&a.params.gpu, kb, count, n)
}

// GetParameterGpuBounceBufferSlabArray is cuFileGetParameterGpuBounceBufferSlabArray.
func (a *API) GetParameterGpuBounceBufferSlabArray(kb, count cmem.Ptr, n int32) error {
	return a.getSlabs(&gpuSlabs, &a.params.gpu, kb, count, n)
}
