package p2p

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config describes the GPUs.
type Config struct {
	GPUs  *softgpu.Driver
	Ports []*pcie.Function // where the GPUs are plugged in, by index

	// ForceBAR1 lets a pin require BAR1, as on platforms whose processor reaches GPU
	// memory by a faster path.
	ForceBAR1 bool

	Points *syncpoint.Points
	// Fail, if not nil, is called at every allocation and can make it fail.
	Fail func(site string) bool
}

// RM is nvidia_p2p_* of the resource manager. It is safe for concurrent use. Errors
// are syscall.Errno.
type RM struct {
	// Self is the process that the software machine runs in. It owns all GPU memory
	// that was not given to another process ([RM.Give]).
	Self *Process

	cfg   Config
	cards []*aperture
	empty *os.File // an empty file: a mapping of it raises SIGBUS

	mu      sync.Mutex
	changed sync.Cond // a pin's state
	pins    map[*pin]bool
	lastID  uint64
	owners  map[uint64]*Process // of allocations, by generation
}

// NewRM adds BAR1 to each GPU.
func NewRM(cfg Config) (*RM, error) {
	rm := &RM{Self: &Process{PID: os.Getpid()}, cfg: cfg, pins: map[*pin]bool{}, owners: map[uint64]*Process{}}
	rm.changed.L = &rm.mu
	fd, err := unix.MemfdCreate("culvert-empty", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	rm.empty = os.NewFile(uintptr(fd), "empty")
	for i := range cfg.Ports {
		if err := rm.addCard(i); err != nil {
			return nil, errors.Join(fmt.Errorf("nvidia_p2p: GPU %d: %w", i, err), rm.Close())
		}
	}
	return rm, nil
}

func (rm *RM) addCard(i int) error {
	g, err := rm.cfg.GPUs.GPU(i)
	if err != nil {
		return err
	}
	a, err := newAperture(g, rm.cfg.Ports[i])
	if err != nil {
		return err
	}
	rm.cards = append(rm.cards, a)
	return nil
}

// Close removes the BARs. It fails if there are pins, and leaves them.
func (rm *RM) Close() error {
	if n := rm.Live(); n > 0 {
		return fmt.Errorf("nvidia_p2p: %d pins were not put", n)
	}
	for _, a := range rm.cards {
		a.bar.Remove()
	}
	return rm.empty.Close()
}

// Live returns the number of pins.
func (rm *RM) Live() int {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	return len(rm.pins)
}

// BAR1Used returns the bytes of a GPU's BAR1 that are pinned, each page once.
func (rm *RM) BAR1Used(gpu int) uint64 { return rm.cards[gpu].usedBytes() }

func (rm *RM) fails(site string) bool { return rm.cfg.Fail != nil && rm.cfg.Fail(site) }

func (rm *RM) at(name string, p *pin) { rm.cfg.Points.At(name, p.id) }

// Give makes a process the owner of the allocation at a. Other allocations belong to
// Self. A process can pin only its own memory.
func (rm *RM) Give(p *Process, a gpu.Addr) error {
	g, ok := rm.cfg.GPUs.Find(a)
	if !ok {
		return syscall.EINVAL
	}
	_, _, gen, err := g.Block(a)
	if err != nil {
		return syscall.EINVAL
	}
	forget := func() {
		rm.mu.Lock()
		defer rm.mu.Unlock()
		delete(rm.owners, gen)
	}
	rm.mu.Lock()
	rm.owners[gen] = p
	rm.mu.Unlock()
	if _, err := g.OnFree(a, 1, forget); err != nil {
		forget()
		return syscall.EINVAL
	}
	return nil
}

// owns reports whether a process may pin the allocation of a generation.
func (rm *RM) owns(p *Process, gen uint64) bool {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	return p == cmp.Or(rm.owners[gen], rm.Self)
}

// find returns the GPU of a range and acquires the memory, if t may pin it.
func (rm *RM) find(t *Task, va, n uint64) (*aperture, *softgpu.Access, error) {
	g, ok := rm.cfg.GPUs.Find(gpu.Addr(va))
	if !ok || g.Index() >= len(rm.cards) {
		return nil, nil, syscall.EINVAL
	}
	card := rm.cards[g.Index()]
	if card.port.Removed() {
		return nil, nil, syscall.ENODEV
	}
	access, err := g.Acquire(gpu.Addr(va), n)
	if err != nil {
		return nil, nil, syscall.EINVAL // not allocated, or past the end of the allocation
	}
	if !rm.owns(t.Process, access.Generation()) {
		access.Release()
		return nil, nil, syscall.EINVAL
	}
	return card, access, nil
}
