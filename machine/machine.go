//go:build linux

// Package machine opens the hardware that a process uses: the GPUs and device nodes
// of this computer, or of a software machine.
//
// CULVERT_MACHINE selects it. "real" fails without an NVIDIA GPU, "soft" is the
// software machine, and "auto" (the default) is the real one if there is a GPU. A
// route can be required on a software machine only if that was asked for: in a
// container that was started without its GPU, a result of the emulation would
// otherwise look like one of hardware.
// CULVERT_SOFT describes the software machine:
// "gpus=2,model=small-bar,memory=1G,scatter,heap,seed=7". With "peer=0000:03:00.0"
// its GPU uses the memory of a real PCI device, such as the controller memory buffer
// of a drive, which other devices reach by peer-to-peer DMA.
// Processes with the same CULVERT_SHARED, the path of a file, share the memory of its
// GPUs; "culvert run" sets it.
package machine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/fault"
)

// A Machine is the devices of a process.
type Machine struct {
	Soft bool // is it the software machine
	// Why tells how the machine was selected: for a software machine, why the real
	// one was not used.
	Why string
	// Automatic means a software machine that nothing asked for: there is no GPU.
	Automatic bool
	GPU       gpu.Driver
	// RDMA has the machine's network adapters; nil on a real machine, where
	// rdma/ibverbs finds them.
	RDMA rdma.Provider

	// Faults, if not nil, breaks a software machine on schedule: CULVERT_FAULT, or
	// package softtest.
	Faults Faults

	//lint:ignore U1000 internal/dev reads it
	seam // the operating system: device nodes, /proc and /sys
}

// Faults is asked before cuFile moves n bytes from or to a file, or registers it or a
// buffer ("read", "write", "register", "buffer"). The call moves no more than limit bytes,
// and fails with err if it is not nil.
type Faults interface {
	Before(call, object string, n uint64) (limit uint64, err error)
}

// seam is embedded unexported, so that users do not see an internal type.
//
//lint:ignore U1000 internal/dev reads it
type seam = dev.Seam

// Close shuts a software machine down. What uses its GPUs and device nodes must be
// closed before. It does nothing on a real machine.
func (m *Machine) Close() error {
	if c, ok := m.GPU.(io.Closer); ok && m.Soft {
		return c.Close()
	}
	return nil
}

// Values of CULVERT_MACHINE.
const (
	Auto = "auto"
	Real = "real"
	Soft = "soft"
)

// Open opens the machine that the environment selects.
func Open() (*Machine, error) {
	m, err := OpenAs(cmp.Or(env.Get("CULVERT_MACHINE"), Auto))
	if err == nil && !m.Soft && env.Get("CULVERT_FAULT") != "" {
		return nil, &SettingError{"CULVERT_FAULT", errors.New("only the software machine can be broken (fix: CULVERT_MACHINE=soft)")}
	}
	return m, err
}

// OpenAs opens a machine: Auto, Real or Soft.
func OpenAs(kind string) (*Machine, error) {
	switch kind {
	case Real:
		return openReal()
	case Soft:
		return openSoft("CULVERT_MACHINE=soft")
	case Auto:
		m, err := openReal()
		if err == nil {
			return m, nil
		}
		m, serr := openSoft(whyNot(err))
		if serr == nil {
			m.Automatic = true
		}
		return m, serr
	}
	return nil, &SettingError{"CULVERT_MACHINE", fmt.Errorf("%q must be auto, real or soft", kind)}
}

// A SettingError is an invalid environment variable.
type SettingError struct {
	Name string
	Err  error
}

func (e *SettingError) Error() string { return e.Name + ": " + e.Err.Error() }

func (e *SettingError) Unwrap() error { return e.Err }

// whyNot is a short reason why there is no real machine. Its two usual cases are not
// faults; with CULVERT_MACHINE=real the error is complete.
func whyNot(err error) string {
	switch {
	case errors.Is(err, cuda.ErrOwnLibrary):
		return "libcuda.so.1 is the software machine's own"
	case errors.Is(err, cuda.ErrNoLibrary):
		return "no NVIDIA driver is installed (CULVERT_MACHINE=real shows the search paths)"
	}
	return err.Error()
}

func openReal() (*Machine, error) {
	drv, err := cuda.Open()
	if err != nil {
		return nil, fmt.Errorf("real machine: %w", err)
	}
	return dev.With(&Machine{GPU: drv, Why: drv.Name()}, dev.Host()), nil
}

func openSoft(why string) (*Machine, error) {
	text := env.Get("CULVERT_SOFT")
	cfg, err := soft.ParseConfig(text)
	if err != nil {
		return nil, &SettingError{"CULVERT_SOFT", err}
	}
	cfg.Shared = env.Get("CULVERT_SHARED")
	faults, err := fault.Parse(env.Get("CULVERT_FAULT"))
	if err != nil {
		return nil, &SettingError{"CULVERT_FAULT", err}
	}
	// Only pins with callbacks can be revoked.
	cfg.Callback = cfg.Callback || slices.ContainsFunc(faults, func(s fault.Spec) bool { return s.Kind == fault.Revoke })
	m, err := FromSoft(cfg, why)
	if err != nil && text != "" {
		err = &SettingError{"CULVERT_SOFT=" + text, err}
	}
	if err != nil {
		return nil, err
	}
	if s, ok := soft.Of(m.GPU); ok && len(faults) > 0 {
		m.Faults = inject(s, faults)
	}
	return m, nil
}

// inject breaks a software machine as specifications say. Under "culvert run" the counts go to
// the directory of the run. A process of another user, or after the run, has no access to it:
// its faults happen, and the report lacks them as it lacks the calls.
func inject(s *soft.Machine, specs []fault.Spec) *fault.Injector {
	i := fault.New(s, specs)
	if dir := env.Get("CULVERT_RUN_DIR"); dir != "" {
		_ = i.Journal(dir)
	}
	return i
}

// Kind is the kind of the machine, for receipts.
func (m *Machine) Kind() route.Machine {
	if m.Soft {
		return route.SoftwareMachine
	}
	return route.RealMachine
}

// Require returns a *route.RequireError for a route on a software machine that
// nothing asked for. Whether the machine has the route is another question.
func (m *Machine) Require(id route.ID) error {
	if !m.Automatic || id == route.None {
		return nil
	}
	asked := "the software machine was not asked for"
	if env.Get("CULVERT_SOFT") != "" { // it may be left over where a GPU is expected
		asked = "CULVERT_SOFT describes the software machine but does not ask for it"
	}
	return &route.RequireError{Want: id, Software: true, Declined: []*route.Decline{{
		Route: id, Test: "machine", Evidence: "no GPU was found, and " + asked + ": " + m.Why,
		Fix: "make the GPU available, or set CULVERT_MACHINE=soft",
	}}}
}

// Accept accepts a software machine that was chosen automatically, so that routes can
// be required on it. It is for callers that mark their own results as software.
func (m *Machine) Accept() { m.Automatic = false }

// FromSoft builds a software machine, whatever the environment says.
func FromSoft(cfg soft.Config, why string) (*Machine, error) {
	if cfg.Fabrics == nil {
		cfg.Fabrics = overFabrics{}
	}
	m, err := soft.New(cfg)
	if err != nil {
		return nil, err
	}
	return dev.With(&Machine{Soft: true, GPU: m.GPU, RDMA: m.RDMA(), Why: why}, dev.Of(m)), nil
}
