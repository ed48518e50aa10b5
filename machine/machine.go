// Package machine is what a process sees of the hardware: the GPUs and the
// device nodes of the computer it runs on, or of a software one.
//
// CULVERT_MACHINE chooses: "real" fails where there is no NVIDIA GPU, "soft" is
// always the software machine, and "auto" (the default) takes the real one where
// there is one and says why not otherwise. CULVERT_SOFT describes the software
// machine: "gpus=2,model=small-bar,memory=1G,scatter,heap,seed=7"; with
// "peer=0000:03:00.0" its GPU's memory is that of a real PCI device, such as the
// controller memory buffer of a drive, which others reach by peer-to-peer DMA.
package machine

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft"
)

// A Machine is the devices that a process sees.
type Machine struct {
	Soft bool // the software machine
	// Why says how the choice was made: for a software machine, what kept the
	// real one from being used.
	Why string
	GPU gpu.Driver

	//lint:ignore U1000 internal/dev reads it
	seam // the operating system: device nodes, /proc and /sys
}

// seam is embedded unexported, so that users do not see an internal type.
//
//lint:ignore U1000 internal/dev reads it
type seam = dev.Seam

// Close takes a software machine down, as if the process had ended: what uses its
// GPUs and nodes must be closed before. A real machine stays as it is.
func (m *Machine) Close() error {
	if c, ok := m.GPU.(io.Closer); ok && m.Soft {
		return c.Close()
	}
	return nil
}

// The values of CULVERT_MACHINE.
const (
	Auto = "auto"
	Real = "real"
	Soft = "soft"
)

// Open opens the machine that the environment asks for.
func Open() (*Machine, error) {
	kind := os.Getenv("CULVERT_MACHINE")
	if kind == "" {
		kind = Auto
	}
	return OpenAs(kind)
}

// OpenAs opens a machine of a kind: Auto, Real or Soft.
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
		return openSoft(whyNot(err))
	}
	return nil, &SettingError{"CULVERT_MACHINE", fmt.Errorf("%q: want auto, real or soft", kind)}
}

// A SettingError says that a variable of the environment makes no sense.
type SettingError struct {
	Name string
	Err  error
}

func (e *SettingError) Error() string { return e.Name + ": " + e.Err.Error() }

func (e *SettingError) Unwrap() error { return e.Err }

// whyNot is the short form of why there is no real machine. The two usual cases
// are no faults; whoever expected a GPU asks for it and gets the whole story.
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
	text := os.Getenv("CULVERT_SOFT")
	cfg, err := soft.ParseConfig(text)
	if err != nil {
		return nil, &SettingError{"CULVERT_SOFT", err}
	}
	m, err := FromSoft(cfg, why)
	if err != nil && text != "" {
		err = &SettingError{"CULVERT_SOFT=" + text, err}
	}
	return m, err
}

// FromSoft builds a software machine as described, whatever the environment says.
func FromSoft(cfg soft.Config, why string) (*Machine, error) {
	m, err := soft.New(cfg)
	if err != nil {
		return nil, err
	}
	return dev.With(&Machine{Soft: true, GPU: m.GPU, Why: why}, dev.Of(m)), nil
}
