// Package check reports which routes a machine has, what is missing for others, and
// how to fix that.
package check

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
)

// A Report describes a machine.
type Report struct {
	Machine Machine  `json:"machine"`
	Kernel  string   `json:"kernel"`
	GPUs    []GPU    `json:"gpus"`
	Nodes   []Node   `json:"nodes"`
	Modules []Module `json:"modules"`
	Limits  []Limit  `json:"limits"`
	Path    *Path    `json:"path,omitempty"`
}

// Machine is the machine that was opened, and why.
type Machine struct {
	Kind    string `json:"kind"` // "real" or "soft"
	Why     string `json:"why"`
	Driver  string `json:"driver"`
	Version string `json:"cuda_version"`
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

// Look reports on a machine.
func Look(m *machine.Machine) (*Report, error) {
	r := &Report{
		Machine: Machine{Kind: "real", Why: m.Why, Driver: m.GPU.Name(), Version: cudaVersion(m.GPU.Version())},
		Nodes:   lookNodes(dev.Of(m)),
		Modules: lookModules(dev.Of(m)),
		Limits:  lookLimits(dev.Of(m)),
		Kernel:  kernelVersion(dev.Of(m).FS()),
	}
	if m.Soft {
		r.Machine.Kind = "soft"
	}
	infos, err := m.GPU.Devices()
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		r.GPUs = append(r.GPUs, lookGPU(m.GPU, info))
	}
	return r, nil
}

func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

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
