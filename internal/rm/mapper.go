package rm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
)

// A GPU is what a Mapper needs of a gpu.Device.
type GPU interface {
	Info() gpu.Info
	Attribute(gpu.Attribute) (int, error)
	Pointer(gpu.Addr) (gpu.Pointer, error)
	Alloc(k gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error)
	Free(gpu.Addr) error
	Export(a gpu.Addr, n uint64, as gpu.Export) (*os.File, error)
	CopyIn(dst gpu.Addr, src []byte) error
	CopyOut(dst []byte, src gpu.Addr) error
	Synchronize() error
}

// An IPCExporter is a GPU that also gives out cuIpcGetMemHandle's handles.
// Without it plain device memory cannot be mapped.
type IPCExporter interface {
	IPCHandle(base gpu.Addr) ([64]byte, error)
}

// NoBudget is a budget that nothing exceeds.
const NoBudget = math.MaxUint64

// A Mapper makes windows on the memory of one GPU. It is safe for concurrent
// use.
type Mapper struct {
	os     dev.OS
	gpu    GPU
	budget uint64
	mapped atomic.Uint64

	trial    sync.Once // of the way of duplicate
	trialErr error

	mu     sync.Mutex
	client *Client // opened at first need
	device *Device
	closed bool
}

// NewMapper makes a mapper that keeps at most budget bytes mapped, counted in
// whole pages. Nothing is opened before the first window is asked for.
func NewMapper(os dev.OS, g GPU, budget uint64) *Mapper {
	return &Mapper{os: os, gpu: g, budget: budget}
}

// Mapped is the number of bytes in windows now.
func (m *Mapper) Mapped() uint64 { return m.mapped.Load() }

// Probe says whether windows can be had on this machine at all: nil, or an
// [*Unavailable]. Whether a given range can be mapped is known only by trying.
func (m *Mapper) Probe() error {
	if m.mapsDMABuf() {
		return nil
	}
	_, err := m.open()
	return err
}

// Map makes n bytes from a visible to the CPU.
//
// An error that wraps an [*Unavailable] says why this memory cannot be mapped.
func (m *Mapper) Map(a gpu.Addr, n uint64) (*Window, error) {
	w, err := m.mapRange(a, n)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes at %v of gpu %d: %w", n, a, m.gpu.Info().Index, err)
	}
	return w, nil
}

func (m *Mapper) mapRange(a gpu.Addr, n uint64) (*Window, error) {
	p, err := m.gpu.Pointer(a)
	if err != nil {
		return nil, err
	}
	if err := m.check(p, a, n); err != nil {
		return nil, err
	}
	r := request{addr: a, n: n, alloc: p}
	size := r.pages(uint64(a - p.Base)).n
	if err := m.reserve(size); err != nil {
		return nil, err
	}
	w, err := m.ladder(r)
	if err != nil {
		m.mapped.Add(-size)
		return nil, err
	}
	unmap := w.unmap
	w.unmap = func() error {
		m.mapped.Add(-size)
		return unmap()
	}
	return w, nil
}

// check refuses what cannot be mapped in any way.
func (m *Mapper) check(p gpu.Pointer, a gpu.Addr, n uint64) error {
	switch {
	case !p.Kind.OnDevice():
		return unavailable("kind of memory", fmt.Errorf("%v memory is not behind BAR1", p.Kind))
	case p.Device != m.gpu.Info().Index:
		return unavailable("GPU", fmt.Errorf("the memory is on gpu %d", p.Device))
	case n == 0 || !p.Contains(a, n) || n > maxInt:
		return fmt.Errorf("the allocation has %d bytes at %v: %w", p.Size, p.Base, gpu.ErrInvalidValue)
	}
	return nil
}

// reserve takes n bytes from the budget.
func (m *Mapper) reserve(n uint64) error {
	for {
		used := m.mapped.Load()
		if n > m.budget || used > m.budget-n {
			return &Unavailable{
				Test: "budget", Err: fmt.Errorf("%d bytes asked for, %d of %d are mapped", n, used, m.budget),
				Fix: "close windows, or raise the budget",
			}
		}
		if m.mapped.CompareAndSwap(used, used+n) {
			return nil
		}
	}
}

// open returns the GPU in this process's client.
func (m *Mapper) open() (*Device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if m.device != nil {
		return m.device, nil
	}
	c, err := Open(m.os)
	if err != nil {
		return nil, err
	}
	d, err := c.Device(m.gpu.Info().PCI)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	m.client, m.device = c, d
	return d, nil
}

// Close ends the mapper. Windows that are open stay valid; the last one to be
// closed takes the client along.
func (m *Mapper) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	if m.client == nil {
		return nil
	}
	return m.client.Close()
}
