package dispatch

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cufileapi"
	"github.com/culvert-io/culvert/clib/internal/devapi"
	"github.com/culvert-io/culvert/clib/internal/gdrapi"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/logfile"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/clib/internal/softrt"
	"github.com/culvert-io/culvert/clib/internal/verbsapi"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A Core answers all C functions of a process.
type Core struct {
	File    *cufileapi.API
	CUDA    *softcuda.Driver
	Runtime *softrt.Runtime
	Verbs   *verbsapi.API
	Dev     *devapi.API
	GDR     *gdrapi.API
	// Log gets a line with the cause of every failed call. Nil disables it.
	Log   io.Writer
	logMu sync.Mutex

	mu      sync.Mutex
	machine *machine.Machine
}

// A Caller calls C functions of the program.
type Caller interface {
	softcuda.Caller
	cufileapi.Caller
}

// New returns a Core that opens its machine in the first call that needs one.
func New(call Caller) *Core {
	c := &Core{}
	c.File = cufileapi.New(c.Machine)
	c.File.Log = c.log
	c.File.Stream = c.stream
	c.File.Caller = call
	c.CUDA = softcuda.New(c.softGPU, call)
	c.Runtime = softrt.New(c.CUDA)
	c.Verbs = verbsapi.New(func() (*machine.Machine, error) { return c.softOnly("libibverbs.so.1") })
	c.Dev = devapi.New(c.softNodes, c.mapExport)
	c.GDR = gdrapi.New(c.Machine)
	return c
}

// log logs the error of a function.
func (c *Core) log(function string, err error) {
	c.File.Journal.Write(logfile.Error, function, "%v", err)
	if c.Log == nil {
		return
	}
	c.logMu.Lock()
	defer c.logMu.Unlock()
	fmt.Fprintf(c.Log, "culvert: %s: %v\n", function, err)
}

// Machine opens the machine that the environment selects, once.
func (c *Core) Machine() (*machine.Machine, error) { return c.open(machine.Open) }

// open opens the machine once; all libraries of the process share it.
func (c *Core) open(by func() (*machine.Machine, error)) (*machine.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine == nil {
		m, err := by()
		if err != nil {
			return nil, err
		}
		c.machine = m
	}
	return c.machine, nil
}

// Leave is called when the process ends, while its threads may still make calls.
func (c *Core) Leave() {
	if !c.mu.TryLock() {
		return // the machine is being opened, for a call that will not end
	}
	defer c.mu.Unlock()
	if c.machine == nil {
		return
	}
	if s, ok := soft.Of(c.machine.GPU); ok {
		if err := s.GPU.Leave(); err != nil {
			c.log("exit", err)
		}
	}
}

// stream finds a stream of the CUDA that the program uses. It checks the handle unless it
// is known to be one.
func (c *Core) stream(t *softcuda.Thread, id handle.ID, known bool) (cufile.Stream, error) {
	m, err := c.Machine()
	if err != nil {
		return nil, err
	}
	real, ok := m.GPU.(gpu.Borrower)
	if !ok {
		return c.softStream(t, id)
	}
	if !known {
		if err := cufileapi.CheckStream(id); err != nil {
			return nil, err
		}
	}
	return real.Borrow(uintptr(id))
}

// softStream finds a stream of the software CUDA. A thread that has only used the
// runtime may have no context yet; then a default stream is that of the primary one.
func (c *Core) softStream(t *softcuda.Thread, id handle.ID) (cufile.Stream, error) {
	s, err := c.CUDA.Stream(t, id)
	if errors.Is(err, gpu.ErrInvalidContext) || errors.Is(err, gpu.ErrNotInitialized) {
		if _, err := c.Runtime.Prepare(t, softcuda.NeedStream, uint64(id)); err != nil {
			return nil, err
		}
		s, err = c.CUDA.Stream(t, id)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// softGPU is the driver below the software CUDA. A program that has loaded that
// library runs on the software machine, unless the environment forbids it.
func (c *Core) softGPU() (*softgpu.Driver, error) {
	if env.Get("CULVERT_MACHINE") == machine.Real {
		return nil, gpu.Fail("cuInit", gpu.ErrNoDevice, "CULVERT_MACHINE=real, but the program has loaded the software machine's libcuda.so.1")
	}
	m, err := c.softMachine()
	if err != nil {
		return nil, err
	}
	d, ok := m.GPU.(*soft.Driver)
	if !ok {
		return nil, gpu.Fail("cuInit", gpu.ErrSystemDriverMismatch, fmt.Sprintf("the process already uses %s", m.GPU.Name()))
	}
	return d.Driver, nil
}

// softOnly is the machine of a program that has loaded a library of the software machine:
// that it has says which machine it uses.
func (c *Core) softOnly(library string) (*machine.Machine, error) {
	if env.Get("CULVERT_MACHINE") == machine.Real {
		return nil, fmt.Errorf("CULVERT_MACHINE=real, but the program has loaded the software machine's %s: %w", library, unix.ENODEV)
	}
	return c.softMachine()
}

// softNodes is the operating system with the software machine's device nodes.
func (c *Core) softNodes() (dev.OS, error) {
	m, err := c.softOnly("libculvert-dev.so")
	if err != nil {
		return nil, err
	}
	return dev.Of(m), nil
}

// mapExport maps a dma-buf of the software CUDA. Without an open machine there is none.
func (c *Core) mapExport(fd int, off int64, n uint64, prot int) (dev.Mapping, error) {
	c.mu.Lock()
	m := c.machine
	c.mu.Unlock()
	if m == nil {
		return nil, unix.ENODEV
	}
	s, ok := soft.Of(m.GPU)
	if !ok {
		return nil, unix.ENODEV
	}
	v, err := s.GPU.MapExport(fd, off, n, prot)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// softMachine opens the software machine, unless the process has opened another.
func (c *Core) softMachine() (*machine.Machine, error) {
	return c.open(func() (*machine.Machine, error) { return machine.OpenAs(machine.Soft) })
}
