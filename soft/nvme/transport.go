package nvme

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/nvme/dma"
)

// A Transport connects a driver in this process to the controller, without a kernel:
// registers by calls, interrupts by channels, memory mapped on demand.
type Transport struct {
	*Controller
	rm   *p2p.RM
	task *p2p.Task
	maps atomic.Int64

	mu     sync.Mutex
	chance *rand.Rand
}

// Transport connects to the controller. Without a resource manager GPU memory cannot
// be mapped. With a random source, pages of host memory are scattered over the bus.
func (c *Controller) Transport(rm *p2p.RM, chance *rand.Rand) *Transport {
	t := &Transport{Controller: c, rm: rm, chance: chance}
	if rm != nil {
		t.task = rm.Self.Task()
	}
	return t
}

// Name returns the controller's PCI address.
func (t *Transport) Name() string { return t.fn.Name() }

// MapHost maps whole pages of host memory for the controller.
func (t *Transport) MapHost(b []byte) (pages []uint64, size uint64, unmap func() error, err error) {
	t.mu.Lock()
	defer t.mu.Unlock() // chance must not be used concurrently
	m, err := dma.Host(t.fn, b, t.chance)
	return t.mapped("host memory", len(b), m, err)
}

// MapGPU maps whole 64 KiB pages of GPU memory for the controller.
func (t *Transport) MapGPU(s gpu.Span) (pages []uint64, size uint64, unmap func() error, err error) {
	if t.rm == nil {
		return nil, 0, nil, fmt.Errorf("%s: map GPU memory: the machine has no nvidia_p2p: %w", t.Name(), errors.ErrUnsupported)
	}
	m, err := dma.GPU(t.fn, t.rm, t.task, uint64(s.Addr()), s.Len, nil)
	return t.mapped(s.String(), int(s.Len), m, err)
}

func (t *Transport) mapped(what string, n int, m *dma.Map, err error) ([]uint64, uint64, func() error, error) {
	if err != nil {
		return nil, 0, nil, fmt.Errorf("%s: map %d bytes of %s: %w", t.Name(), n, what, err)
	}
	t.maps.Add(1)
	var once sync.Once
	unmap := func() error {
		once.Do(func() { t.maps.Add(-1) }) // also if the memory was freed
		if err := m.Unmap(); err != nil {
			return fmt.Errorf("%s: unmap %s: %w", t.Name(), what, err)
		}
		return nil
	}
	return m.Addrs, m.PageSize, unmap, nil
}

// Close returns an error if memory is still mapped. The controller keeps running.
func (t *Transport) Close() error {
	if n := t.maps.Load(); n > 0 {
		return fmt.Errorf("%s: %d maps of memory were not unmapped", t.Name(), n)
	}
	return nil
}
