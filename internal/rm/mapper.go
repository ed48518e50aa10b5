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

// A GPU is the part of gpu.Device that a Mapper needs.
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

// An IPCExporter is a GPU with cuIpcGetMemHandle, which is needed to map
// gpu.KindDevice memory.
type IPCExporter interface {
	IPCHandle(base gpu.Addr) ([64]byte, error)
}

// NoBudget is an unlimited budget.
const NoBudget = math.MaxUint64

// A Mapper maps memory of one GPU. It is safe for concurrent use.
type Mapper struct {
	os     dev.OS
	gpu    GPU
	budget atomic.Uint64
	mapped atomic.Uint64

	trial    sync.Once // of MethodDuplicate
	trialErr error

	mu     sync.Mutex
	client *Client // opened at first use
	device *device
	closed bool
}

// NewMapper makes a mapper that keeps at most budget bytes mapped, in whole pages.
// It opens no device node before the first use.
func NewMapper(os dev.OS, g GPU, budget uint64) *Mapper {
	m := &Mapper{os: os, gpu: g}
	m.budget.Store(budget)
	return m
}

// Mapped is the number of bytes that are mapped.
func (m *Mapper) Mapped() uint64 { return m.mapped.Load() }

// Probe returns nil if memory can be mapped on this machine, else an
// [*Unavailable]. Whether a given range can be mapped, only Map can tell.
func (m *Mapper) Probe() error {
	if err := declined(m.os, m.gpu.Info()); err != nil {
		return err
	}
	if m.mapsDMABuf() {
		return nil
	}
	_, err := m.open()
	return err
}

// Map maps n bytes from a. If this memory cannot be mapped, the error wraps an
// [*Unavailable].
func (m *Mapper) Map(a gpu.Addr, n uint64) (*Mapping, error) {
	w, err := m.mapRange(a, n)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes at %v of gpu %d: %w", n, a, m.gpu.Info().Index, err)
	}
	return w, nil
}

func (m *Mapper) mapRange(a gpu.Addr, n uint64) (*Mapping, error) {
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
	w, err := m.mapRequest(r)
	if err != nil {
		m.mapped.Add(-size)
		return nil, err
	}
	unmap := w.close
	w.close = sync.OnceValue(func() error {
		m.mapped.Add(-size)
		return unmap()
	})
	return w, nil
}

// check rejects memory that no method can map.
func (m *Mapper) check(p gpu.Pointer, a gpu.Addr, n uint64) error {
	switch {
	case !p.Kind.OnDevice():
		return unavailable("kind of memory", fmt.Errorf("%v memory is not GPU memory", p.Kind))
	case p.Device != m.gpu.Info().Index:
		return unavailable("GPU", fmt.Errorf("memory is on gpu %d", p.Device))
	case n == 0 || !p.Contains(a, n) || n > maxInt:
		return fmt.Errorf("range exceeds its allocation of %d bytes at %v: %w", p.Size, p.Base, gpu.ErrInvalidValue)
	}
	return nil
}

// SetBudget changes the budget for later mappings.
func (m *Mapper) SetBudget(n uint64) { m.budget.Store(n) }

// reserve takes n bytes from the budget.
func (m *Mapper) reserve(n uint64) error {
	for {
		used := m.mapped.Load()
		if budget := m.budget.Load(); n > budget || used > budget-n {
			return &Unavailable{
				Test: "budget", Err: fmt.Errorf("%d bytes requested, %d of %d are mapped", n, used, budget),
				Fix: "close mappings, or raise the budget",
			}
		}
		if m.mapped.CompareAndSwap(used, used+n) {
			return nil
		}
	}
}

// open returns the GPU in the client, which it opens at the first call.
func (m *Mapper) open() (*device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if m.device != nil {
		return m.device, nil
	}
	if err := declined(m.os, m.gpu.Info()); err != nil {
		return nil, err
	}
	c, err := Open(m.os)
	if err != nil {
		return nil, err
	}
	d, err := c.device(m.gpu.Info().PCI)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	m.client, m.device = c, d
	return d, nil
}

// Close closes the mapper. Open mappings stay valid; the client is closed with
// the last of them.
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
