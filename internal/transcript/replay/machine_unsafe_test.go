package replay

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
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/gpumem"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
)

// A machine is a software machine with one emulated module, in the state in
// which conversations were recorded.
type machine struct {
	*transcript.Target
	module string
	soft   *soft.Machine
	os     *kernel.OS
	gpu    gpu.Device
	child  *p2p.Process
	fail   int // number of pins that fail
	bufs   []gpu.Addr
	unload func()
}

const bufferSize = 2 << 20 // of the allocations in the recordings

func newMachine(c *transcript.Conversation) (*machine, error) {
	m := &machine{module: c.Module, child: &p2p.Process{PID: 2}}
	var err error
	// The stand-in for the driver accepted all flags.
	cfg := soft.Config{Memory: 16 << 20, Without: soft.Modules(), ForceBAR1: true, Fail: m.failing}
	if m.soft, err = soft.New(cfg); err != nil {
		return nil, err
	}
	if m.gpu, err = m.soft.GPU.Open(0); err != nil {
		return nil, err
	}
	m.os = m.soft.Kernel()
	m.Target = &transcript.Target{
		OS: dev.Of(m.os), Buffer: m.buffer, Knob: m.knob, Child: m.inherit, Private: m.private,
		Load:  func(a uint64, p []byte) error { return m.gpu.CopyOut(p, gpu.Addr(a)) },
		Store: func(a uint64, p []byte) error { return m.gpu.CopyIn(gpu.Addr(a), p) },
	}
	return m, m.load(c)
}

// load loads the emulated module of the conversation.
func (m *machine) load(c *transcript.Conversation) error {
	switch c.Module {
	case "gdrdrv":
		mod, err := gdrdrv.New(m.os, gdrdrv.Config{RM: m.soft.P2P(), Callback: strings.Contains(c.Mode, "use_persistent_mapping=0")})
		if err != nil {
			return err
		}
		m.unload, m.Judge = mod.Close, newGdrdrvJudge()
	case "gpumem":
		mod, err := gpumem.New(m.os, gpumem.Config{RM: m.soft.P2P()})
		if err != nil {
			return err
		}
		m.unload, m.Judge = mod.Close, newGpumemJudge()
	default:
		return fmt.Errorf("no emulated module %q", c.Module)
	}
	return nil
}

func (m *machine) useClient() {
	switch m.module {
	case "gdrdrv":
		c := newGdrdrvClient(dev.Of(m.os))
		m.OS, m.Client = c, c
	case "gpumem":
		c := newGpumemClient(dev.Of(m.os))
		m.OS, m.Client = c, c
	}
}

// close unloads the module, and fails if anything was not released.
func (m *machine) close() error {
	m.unload()
	var errs []error
	for _, a := range m.bufs {
		errs = append(errs, m.gpu.Free(a))
	}
	return errors.Join(append(errs, m.soft.InUse(), m.gpu.Close(), m.soft.Close())...)
}

// buffer allocates memory and clears it.
func (m *machine) buffer(string) (uint64, error) {
	a, err := m.gpu.Alloc(gpu.KindDevice, bufferSize, 0)
	if err != nil {
		return 0, err
	}
	m.bufs = append(m.bufs, a)
	return uint64(a), m.gpu.Fill(a, 0, 4, bufferSize/4)
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
		m.soft.P2P().Revoke()
		return 0, nil
	case "fail_next":
		n, err := strconv.Atoi(value)
		m.fail = n
		return 0, err
	case "live":
		return int64(m.soft.P2P().Live()), nil
	}
	return 0, fmt.Errorf("unknown knob %q", name)
}

// file is the module's side of a node.
func (m *machine) file(n dev.Node) kernel.File {
	if s, ok := n.(*transcript.Spy); ok {
		n = s.Node
	}
	return m.os.File(n.Fd())
}

// inherit is a node as a child process uses it.
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

// private is mmap with MAP_PRIVATE, which all emulated modules refuse.
func (m *machine) private(dev.Node, int64, int, int) (dev.Mapping, error) { return nil, syscall.EINVAL }
