package ring

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// A pool pins memory within a budget. What it gives out stays until close:
// pinning costs far more than any transfer that could use it.
type pool struct {
	dev    gpu.Device
	near   *unix.CPUSet // nil: anywhere
	budget int64

	mu     sync.Mutex
	pinned int64
	slabs  []slab
}

// alloc pins n bytes on a page border.
func (p *pool) alloc(n int64) (gpu.Addr, []byte, error) {
	n += page
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned+n > p.budget {
		return 0, nil, fmt.Errorf("ring: pinned memory is limited to %d bytes, of which %d are taken: %d more do not fit", p.budget, p.pinned, n)
	}
	var s slab
	err := beside(p.near, func() (err error) {
		s, err = pin(p.dev, n)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("ring: pin %d bytes of host memory (%d of at most %d are pinned; see the memory limit of the container or lower the budget): %w",
			n, p.pinned, p.budget, err)
	}
	p.pinned += n
	p.slabs = append(p.slabs, s)
	skip := uint64(-s.addr) % page
	return s.addr + gpu.Addr(skip), gpu.HostBytes(s.addr, uint64(n))[skip : skip+uint64(n)-page], nil
}

func (p *pool) size() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pinned
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, s := range p.slabs {
		err = errors.Join(err, s.free(p.dev))
	}
	p.slabs, p.pinned = nil, 0
	return err
}
