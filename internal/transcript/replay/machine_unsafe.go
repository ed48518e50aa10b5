package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/transcript"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/gpumem"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/kernel/p2p/rig"
)

// A machine is a software machine with one module loaded, in the state in which
// conversations were recorded.
type machine struct {
	*transcript.World
	module string
	rig    *rig.Rig
	child  *p2p.Process
	fail   int // pins that are to fail
	bufs   []gpu.Addr
	unload func()
}

const bufferSize = 2 << 20 // of what stood for an allocation

func newMachine(c *transcript.Conversation) (*machine, error) {
	m := &machine{module: c.Module, child: &p2p.Process{PID: 2}}
	var err error
	// What stood for the driver accepted all flags.
	if m.rig, err = rig.New(rig.Config{ForceBAR1: true, Fail: m.failing}); err != nil {
		return nil, err
	}
	m.World = &transcript.World{
		OS: m.rig.OS, Buffer: m.buffer, Knob: m.knob, Child: m.inherit, Private: m.private,
		Load:  func(a uint64, p []byte) error { return m.rig.GPU.CopyOut(p, gpu.Addr(a)) },
		Store: func(a uint64, p []byte) error { return m.rig.GPU.CopyIn(gpu.Addr(a), p) },
	}
	return m, m.load(c)
}

// load loads the module that the conversation was held with.
func (m *machine) load(c *transcript.Conversation) error {
	switch c.Module {
	case "gdrdrv":
		twin, err := gdrdrv.New(m.rig.OS, gdrdrv.Config{RM: m.rig.RM, Callback: strings.Contains(c.Mode, "use_persistent_mapping=0")})
		if err != nil {
			return err
		}
		m.unload, m.Judge = twin.Close, newGdrdrvJudge()
	case "gpumem":
		twin, err := gpumem.New(m.rig.OS, gpumem.Config{RM: m.rig.RM})
		if err != nil {
			return err
		}
		m.unload, m.Judge = twin.Close, newGpumemJudge()
	default:
		return fmt.Errorf("no twin of module %q is known here", c.Module)
	}
	return nil
}

func (m *machine) useClient() {
	switch m.module {
	case "gdrdrv":
		c := newGdrdrvClient(m.rig.OS)
		m.OS, m.Client = c, c
	case "gpumem":
		c := newGpumemClient(m.rig.OS)
		m.OS, m.Client = c, c
	}
}

// close unloads the module and wants everything back.
func (m *machine) close() error {
	m.unload()
	var errs []error
	for _, a := range m.bufs {
		errs = append(errs, m.rig.GPU.Free(a))
	}
	return errors.Join(append(errs, m.rig.Close())...)
}

// buffer allocates memory and clears it.
func (m *machine) buffer(string) (uint64, error) {
	a, err := m.rig.GPU.Alloc(gpu.KindDevice, bufferSize, 0)
	if err != nil {
		return 0, err
	}
	m.bufs = append(m.bufs, a)
	return uint64(a), m.rig.GPU.Fill(a, 0, 4, bufferSize/4)
}

// failing makes pins fail at their first allocation.
func (m *machine) failing(site string) bool {
	if site != "mem_info" || m.fail == 0 {
		return false
	}
	m.fail--
	return true
}

func (m *machine) knob(name, value string) (int64, error) {
	switch name {
	case "revoke":
		m.rig.RM.Revoke()
		return 0, nil
	case "fail_next":
		n, err := strconv.Atoi(value)
		m.fail = n
		return 0, err
	case "live":
		return int64(m.rig.RM.Live()), nil
	}
	return 0, fmt.Errorf("no such knob: %q", name)
}

// file is the module's side of a node.
func (m *machine) file(n dev.Node) kernel.File {
	if s, ok := n.(*transcript.Spy); ok {
		n = s.Node
	}
	return m.rig.OS.File(n.Fd())
}

// inherit is a node in the hands of a child process.
func (m *machine) inherit(n dev.Node) dev.Node {
	f, ok := m.file(n).(interface {
		By(*p2p.Process) kernel.File
	})
	if !ok {
		return n
	}
	return inherited{n, f.By(m.child)}
}

type inherited struct {
	dev.Node
	file kernel.File
}

func (n inherited) Ioctl(req uintptr, arg unsafe.Pointer) error { return n.file.Ioctl(req, arg) }

func (n inherited) Mmap(off int64, size, prot int) (dev.Mapping, error) {
	return n.file.Mmap(off, size, prot)
}

func (m *machine) private(n dev.Node, off int64, size, prot int) (dev.Mapping, error) {
	f, ok := m.file(n).(interface {
		MmapPrivate(off int64, n, prot int) (dev.Mapping, error)
	})
	if !ok {
		return nil, syscall.EOPNOTSUPP
	}
	return f.MmapPrivate(off, size, prot)
}
