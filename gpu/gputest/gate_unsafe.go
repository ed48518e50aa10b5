package gputest

import (
	"sync/atomic"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
)

// A gate is a word of pinned memory on which streams wait.
type gate struct {
	a gpu.Addr
	w *atomic.Uint64
}

// gate makes a gate. The end of the case opens it, so that no stream hangs.
func (b *bench) gate() gate {
	b.Helper()
	a := b.alloc(gpu.KindHost, 8)
	g := gate{a, (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(gpu.HostBytes(a, 8))))}
	g.w.Store(0)
	b.Cleanup(g.open)
	return g
}

// block makes the stream wait until the gate opens.
func (g gate) block(b *bench, s gpu.Stream) {
	b.Helper()
	b.must(s.Wait(g.a, 1, 4, gpu.CondEQ))
}

func (g gate) open() { g.w.Store(1) }
