// Package check reports which routes a machine has, what is missing for others, and
// how to fix that.
package check

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// A Report describes this computer and, if commands use it, the software machine.
type Report struct {
	Machine Machine `json:"machine"` // the one that commands use
	Kernel  string  `json:"kernel"`
	Devices         // of this computer
	NoGPU   string  `json:"no_gpu,omitempty"` // why it has no usable GPU
	Limits  []Limit `json:"limits"`
	// Software is the emulation; nil if commands use this computer's GPUs.
	Software *Devices `json:"software,omitempty"`
	// Off are the routes that the environment switches off.
	Off  []route.ID `json:"routes_off,omitempty"`
	Path *Path      `json:"path,omitempty"`
	// Verbose prints all that is known also with a path. JSON has it always.
	Verbose bool `json:"-"`
	// Width is the number of columns of the screen; 0 has room for everything.
	Width int `json:"-"`
}

// Machine is the machine that commands use, and why.
type Machine struct {
	Kind    string `json:"kind"` // "real", "soft"; "none" if the one that was asked for does not open
	Why     string `json:"why"`
	Driver  string `json:"driver"`
	Version string `json:"cuda_version"`
}

// Devices are what a machine has.
type Devices struct {
	GPUs    []GPU    `json:"gpus"`
	Nodes   []Node   `json:"nodes"`
	Modules []Module `json:"modules"`
	NICs    []NIC    `json:"nics"`             // RDMA devices
	NoNIC   string   `json:"no_nic,omitempty"` // why there can be none
}

// A GPU with the attributes that decide which routes it has.
type GPU struct {
	gpu.Info
	Free       uint64      `json:"memory_free"`
	Attributes []Attribute `json:"attributes"`
	Err        string      `json:"error,omitempty"`
}

// An Attribute of a GPU. Known is false if the driver does not have it.
type Attribute struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
	Known bool   `json:"known"`
}

// Look reports on this computer, and on m if it is a software machine. m is nil if the
// machine that was asked for does not open.
func Look(m *machine.Machine) (r *Report, err error) {
	if err := ladder.CheckSwitch(); err != nil {
		return nil, &machine.SettingError{Name: ladder.RoutesSwitch, Err: err}
	}
	r = &Report{Kernel: kernelVersion(dev.Host().FS()), Limits: lookLimits(dev.Host()), Off: ladder.SwitchedOff()}
	here := m
	switch {
	case m == nil:
		r.Machine = Machine{Kind: "none", Why: "it does not open"}
	case m.Soft:
		r.Limits = lookLimits(dev.Of(m))
		if r.Software, err = lookDevices(m.GPU, dev.Of(m)); err != nil {
			return nil, err
		}
	}
	if m == nil || m.Soft {
		if here, err = machine.OpenAs(machine.Real); err != nil {
			r.NoGPU = err.Error()
		}
	}
	if m != nil {
		r.Machine = Machine{Kind: "real", Why: m.Why, Driver: m.GPU.Name(), Version: fmt.Sprintf("%d.%d", m.GPU.Version()/1000, m.GPU.Version()%1000/10)}
		if m.Soft {
			r.Machine.Kind = "soft"
		}
	}
	var drv gpu.Driver
	if here != nil {
		drv = here.GPU
	}
	d, err := lookDevices(drv, dev.Host())
	r.Devices = *d
	return r, err
}

// lookDevices lists the GPUs of a driver, which may be nil, and what os has.
func lookDevices(drv gpu.Driver, os dev.OS) (*Devices, error) {
	d := &Devices{GPUs: []GPU{}, Nodes: lookNodes(os), Modules: lookModules(os)}
	var err error
	if drv != nil {
		var infos []gpu.Info
		infos, err = drv.Devices()
		for _, info := range infos {
			d.GPUs = append(d.GPUs, lookGPU(drv, info))
		}
	}
	if d.NICs = lookNICs(os, d.GPUs); len(d.NICs) == 0 {
		d.NoNIC = none(os)
	}
	return d, err
}

func lookGPU(drv gpu.Driver, info gpu.Info) GPU {
	g := GPU{Info: info}
	dev, err := drv.Open(info.Index)
	if err != nil {
		g.Err = err.Error()
		return g
	}
	defer dev.Close()
	if g.Free, _, err = dev.MemInfo(); err != nil {
		g.Err = err.Error()
	}
	for _, a := range gpu.DirectIOAttributes {
		v, err := dev.Attribute(a)
		g.Attributes = append(g.Attributes, Attribute{a.String(), v, err == nil})
	}
	return g
}
