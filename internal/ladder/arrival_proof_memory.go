package ladder

import (
	"errors"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

// proofMemory is GPU memory of the prover, in which writes are proved: one half to write
// from, one to read into. It is kept until the ladder closes, because allocating and
// freeing may wait for streams, and a stream may wait for the op whose stack is proved.
type proofMemory struct {
	from, to gpu.Span
	routes   []Route // with which it is registered
}

var errNoProofMemory = errors.New("no GPU memory for the proof, and none can be allocated while a stream waits")

// prepareProofs makes the memory for proofs and registers it with direct routes, and only
// with those: the mapping of BAR1 waits for streams.
func (v *prover) prepareProofs(routes ...Route) error {
	if v.proofMemoryFor(routes...) != nil {
		return nil
	}
	v.making.Lock()
	defer v.making.Unlock()
	m := proofMemory{}
	if old := v.memory.Load(); old != nil {
		m = *old
	} else {
		a, err := v.dev.Alloc(gpu.KindDevice, 2*writeProofSize, 0)
		if err != nil {
			return err
		}
		all := gpu.Span{Base: a, Len: 2 * writeProofSize}
		m.from, m.to = all.Slice(0, writeProofSize), all.Slice(writeProofSize, writeProofSize)
	}
	for _, r := range routes {
		if !slices.Contains(m.routes, r) {
			r.Register(m.all(), gpu.KindDevice)
			m.routes = append(slices.Clip(m.routes), r)
		}
	}
	v.memory.Store(&m)
	return nil
}

// proofMemoryFor returns the memory for proofs if all of the routes know it, otherwise nil.
func (v *prover) proofMemoryFor(routes ...Route) *proofMemory {
	m := v.memory.Load()
	if m == nil || slices.ContainsFunc(routes, func(r Route) bool { return !slices.Contains(m.routes, r) }) {
		return nil
	}
	return m
}

func (m *proofMemory) all() gpu.Span { return gpu.Span{Base: m.from.Base, Len: 2 * writeProofSize} }

// close frees what proofs have used. The routes are still open, and no op is in flight.
func (v *prover) close() error {
	if m := v.memory.Swap(nil); m != nil {
		for _, r := range m.routes {
			r.Deregister(m.all())
		}
		v.dev.Free(m.from.Base) // a GPU that is gone has no memory to free
	}
	return v.copies.close()
}
