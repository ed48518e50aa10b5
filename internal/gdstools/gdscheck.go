package gdstools

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/culvert-io/culvert/internal/check"
)

// targets are the kinds of storage that gdscheck lists, and the module whose hooks
// Culvert can use for them; "" if Culvert has no direct route.
var targets = []struct{ name, module string }{
	{"NVMe P2PDMA", ""},
	{"NVMe", "nvidia_fs"},
	{"NVMeOF", ""},
	{"SCSI", ""},
	{"ScaleFlux CSD", ""},
	{"NVMesh", ""},
	{"DDN EXAScaler", ""},
	{"IBM Spectrum Scale", ""},
	{"NFS", ""},
	{"BeeGFS", ""},
	{"WekaFS", ""},
}

// Check prints a report in gdscheck's layout. It fails where there is no GPU; on a
// software machine that was asked for, the verdict says so.
func Check(r *check.Report, version string, asked bool, out io.Writer) error {
	devices := &r.Devices
	if r.Software != nil && asked {
		devices = r.Software
	}
	p := printer{out}
	p.line(" GDS release version: culvert %s", version)
	p.line(" nvidia_fs version:  %s libcufile version: 2.12", cmp.Or(moduleVersion(devices, "nvidia_fs"), "not loaded"))
	p.section("ENVIRONMENT:")
	p.section("DRIVER CONFIGURATION:")
	for _, t := range targets {
		state := "Unsupported"
		if t.module != "" && loaded(devices, t.module) {
			state = "Supported"
		}
		p.line(" %-19s: %s", t.name, state)
	}
	p.section("GPU INFO:")
	for _, g := range devices.GPUs {
		p.line(" GPU index %d %s %s", g.Index, g.Name, support(&g))
	}
	p.section("PLATFORM INFO:")
	p.line(" Kernel: %s", r.Kernel)
	switch {
	case len(devices.GPUs) == 0:
		return fmt.Errorf("platform verification failed: no GPU: %s (CULVERT_MACHINE=soft checks the software machine)", strings.TrimSpace(r.NoGPU))
	case r.Software != nil:
		p.line(" Platform verification succeeded (software machine: nothing here is hardware)")
	default:
		p.line(" Platform verification succeeded")
	}
	return nil
}

// support says whether the driver lets other devices reach the GPU's memory.
func support(g *check.GPU) string {
	for _, a := range g.Attributes {
		if a.Name == "GPU_DIRECT_RDMA_SUPPORTED" && a.Known && a.Value == 1 {
			return "supports GDS"
		}
	}
	return "does not support GDS"
}

type printer struct{ w io.Writer }

func (p printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p printer) section(title string) {
	bar := strings.Repeat("=", len(title))
	p.line(" %s\n %s\n %s", bar, title, bar)
}

func module(d *check.Devices, name string) *check.Module {
	for i := range d.Modules {
		if d.Modules[i].Name == name {
			return &d.Modules[i]
		}
	}
	return nil
}

func loaded(d *check.Devices, name string) bool {
	m := module(d, name)
	return m != nil && m.Loaded
}

func moduleVersion(d *check.Devices, name string) string {
	if !loaded(d, name) {
		return ""
	}
	return strings.TrimPrefix(module(d, name).Detail, "version: ")
}
