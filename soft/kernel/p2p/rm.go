package p2p

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/nvrm"
	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config says what the resource manager manages.
type Config struct {
	GPUs  *softgpu.Driver
	Ports []*pcie.Function // where the GPUs are plugged in, by index

	// ForceBAR1 is true on platforms whose processor reaches GPU memory by a
	// better way than BAR1, so that a pin can ask for BAR1 in spite of it.
	ForceBAR1 bool
	// Cacheable is true on platforms where that way is coherent.
	Cacheable bool

	Points *syncpoint.Points
	// Fail, if any, is asked at every allocation and makes it fail.
	Fail func(site string) bool
}

// The answers of the resource manager, before they become errors.
const (
	statusInvalid     = nvrm.NV_ERR_INVALID_ARGUMENT
	statusNotFound    = nvrm.NV_ERR_OBJECT_NOT_FOUND
	statusNoMemory    = nvrm.NV_ERR_NO_MEMORY
	statusUnsupported = nvrm.NV_ERR_NOT_SUPPORTED
	statusBusy        = nvrm.NV_ERR_STATE_IN_USE
	statusGeneric     = nvrm.NV_ERR_GENERIC
)

// errno is how the calls return a status: nil, or a syscall.Errno.
func errno(s nvrm.Status) error {
	if e := abi.Errno(s); e != 0 {
		return e
	}
	return nil
}

// RM is nvidia_p2p_* as the resource manager implements it. It is safe for
// concurrent use. Errors are syscall.Errno, as a kernel function returns them.
type RM struct {
	// Self is the process that the software machine runs in. It owns all GPU
	// memory that is not registered with another [Object].
	Self *Process

	cfg   Config
	cards []*aperture
	void  *os.File // nothing: what a zapped mapping shows

	mu      sync.Mutex
	changed sync.Cond // a pin's state
	pins    map[*pin]bool
	lastID  uint64
	objects []*Object
	owners  map[uint64]*Object // of blocks, by generation
	rsync   bool
}

// NewRM takes charge of the GPUs, and gives each its BAR1.
func NewRM(cfg Config) (*RM, error) {
	rm := &RM{Self: &Process{PID: os.Getpid()}, cfg: cfg, pins: map[*pin]bool{}, owners: map[uint64]*Object{}}
	rm.changed.L = &rm.mu
	rm.objects = []*Object{{rm: rm, clients: []*Process{rm.Self}}}
	fd, err := unix.MemfdCreate("culvert-void", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	rm.void = os.NewFile(uintptr(fd), "void")
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

// Close takes the BARs away. Pins that are left are an error, and stay.
func (rm *RM) Close() error {
	if n := rm.Live(); n > 0 {
		return fmt.Errorf("nvidia_p2p: %d pins were not put", n)
	}
	for _, a := range rm.cards {
		a.bar.Remove()
	}
	return rm.void.Close()
}

// Live is the number of pins that have not ended.
func (rm *RM) Live() int {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	return len(rm.pins)
}

// BAR1Used is how much of a GPU's BAR1 pins take up, each page once.
func (rm *RM) BAR1Used(gpu int) uint64 { return rm.cards[gpu].usedBytes() }

// fails asks the fault injector.
func (rm *RM) fails(site string) bool { return rm.cfg.Fail != nil && rm.cfg.Fail(site) }

func (rm *RM) at(name string, p *pin) { rm.cfg.Points.At(name, p.id) }

// An Object stands for a client's registered video memory (class 0x503c), by
// which the resource manager finds out whose memory an address is.
type Object struct {
	rm      *RM
	clients []*Process // guarded by RM.mu
}

// maxClients is how many processes an object serves.
const maxClients = 256

// NewObject makes an object for a process.
func (rm *RM) NewObject(p *Process) *Object {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	o := &Object{rm, []*Process{p}}
	rm.objects = append(rm.objects, o)
	return o
}

// Serve lets another process pin the object's memory.
func (o *Object) Serve(p *Process) error {
	o.rm.mu.Lock()
	defer o.rm.mu.Unlock()
	if len(o.clients) == maxClients {
		return errno(nvrm.NV_ERR_INSUFFICIENT_RESOURCES)
	}
	o.clients = append(o.clients, p)
	return nil
}

// Register says that the allocation at a is the object's.
func (o *Object) Register(a gpu.Addr) error {
	g, ok := o.rm.cfg.GPUs.Find(a)
	if !ok {
		return errno(statusNotFound)
	}
	_, gen, err := g.Frames(a, 1)
	if err != nil {
		return errno(statusNotFound)
	}
	forget := func() {
		o.rm.mu.Lock()
		defer o.rm.mu.Unlock()
		delete(o.rm.owners, gen)
	}
	o.rm.mu.Lock()
	o.rm.owners[gen] = o
	o.rm.mu.Unlock()
	if _, err := g.OnFree(a, 1, forget); err != nil {
		forget()
		return errno(statusNotFound)
	}
	return nil
}

// Close ends the object: its processes own nothing through it any more.
func (o *Object) Close() {
	o.rm.mu.Lock()
	defer o.rm.mu.Unlock()
	o.clients = nil
	o.rm.objects = slices.DeleteFunc(o.rm.objects, func(x *Object) bool { return x == o })
}

// owns says whether a process may pin the block of a generation.
func (rm *RM) owns(p *Process, gen uint64) nvrm.Status {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	var found *Object
	for _, o := range rm.objects {
		if !slices.Contains(o.clients, p) {
			continue
		}
		if found != nil {
			return statusGeneric // which of the two?
		}
		found = o
	}
	owner := rm.owners[gen]
	if owner == nil {
		owner = rm.objects[0]
	}
	if found != owner {
		return statusNotFound
	}
	return nvrm.NV_OK
}

// The calls of older days.

// InitMapping is not supported any more.
func (rm *RM) InitMapping() error { return errno(statusUnsupported) }

// DestroyMapping is not supported any more.
func (rm *RM) DestroyMapping() error { return errno(statusUnsupported) }

// GetRsyncRegisters always fails: no GPU has them.
func (rm *RM) GetRsyncRegisters() error { return syscall.ENODEV }

// RegisterRsyncDriver registers the one driver that there can be.
func (rm *RM) RegisterRsyncDriver() error {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	if rm.rsync {
		return errno(statusBusy)
	}
	rm.rsync = true
	return nil
}

// UnregisterRsyncDriver makes room for another.
func (rm *RM) UnregisterRsyncDriver() {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	rm.rsync = false
}

// find is the GPU whose memory a range is, and whether t may have it.
func (rm *RM) find(t *Task, va, n uint64) (*aperture, *softgpu.Loan, error) {
	g, ok := rm.cfg.GPUs.Find(gpu.Addr(va))
	if !ok || g.Index() >= len(rm.cards) {
		return nil, nil, errno(statusNotFound)
	}
	card := rm.cards[g.Index()]
	if card.port.Removed() {
		return nil, nil, errno(abi.NV_ERR_GPU_UUID_NOT_FOUND)
	}
	loan, err := g.Lend(gpu.Addr(va), n)
	if err != nil {
		return nil, nil, errno(statusInvalid) // not there, or the end is past the allocation
	}
	_, gen, _ := loan.Frames()
	if s := rm.owns(t.Process, gen); s != nvrm.NV_OK {
		loan.Return()
		return nil, nil, errno(s)
	}
	return card, loan, nil
}
