package check

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/sysfs"
)

// A Module is a kernel module that a route or another client needs.
type Module struct {
	Name   string `json:"name"`
	Loaded bool   `json:"loaded"`
	Detail string `json:"detail,omitempty"` // its version, if known
	For    string `json:"for"`
	Fix    string `json:"fix,omitempty"`
	Note   string `json:"note,omitempty"` // if there is no fix, or a warning
}

// A sign is a file that exists if a module is loaded. Its first line may be the
// module's version.
type sign struct {
	path    string
	version bool
}

var modules = []struct {
	name    string
	signs   []sign
	purpose string
	fix     string
}{
	{"nvidia", []sign{{"proc/driver/nvidia/version", true}}, "the GPU driver", "install NVIDIA's open kernel modules"},
	{"nvidia_fs", []sign{{"proc/driver/nvidia-fs/version", true}}, "cuFile's direct path (route nvfs)", "install nvidia-fs and run: modprobe nvidia-fs"},
	{"nvidia_peermem", []sign{{"sys/module/nvidia_peermem/version", true}}, "RDMA into GPU memory", "modprobe nvidia-peermem"},
	{
		"gdrdrv",
		[]sign{{"sys/module/gdrdrv/version", true}, {"proc/driver/gdrdrv/params", true}},
		"GDRCopy",
		"not needed if /dev/nvidiactl can map BAR1",
	},
	{
		"gpumem",
		[]sign{{"proc/gpumem", false}},
		"physical pages of GPU memory for custom devices",
		"needed only for custom devices: build gpumem of the gpudma project and run: insmod gpumem.ko",
	},
	{"nvme", []sign{{"sys/module/nvme/version", true}}, "local NVMe drives", ""},
}

func lookModules(os dev.OS) []Module {
	root := os.FS()
	list := make([]Module, 0, len(modules))
	for _, m := range modules {
		mod := Module{Name: m.name, For: m.purpose}
		for _, s := range append(m.signs, sign{path: "sys/module/" + m.name}) {
			if _, err := fs.Stat(root, s.path); err != nil {
				continue
			}
			mod.Loaded = true
			if s.version && mod.Detail == "" {
				mod.Detail = firstLine(root, s.path)
			}
		}
		if !mod.Loaded {
			if mod.Note = none(os); mod.Note == "" {
				mod.Fix = m.fix
			}
		}
		if mod.Name == "nvidia_fs" && mod.Loaded && !dev.Simulated(os) {
			text, _ := fs.ReadFile(root, m.signs[0].path)
			mod.Note = panics(string(text), kernelVersion(root))
		}
		list = append(list, mod)
	}
	return list
}

// panics warns of a kernel that nvidia-fs can crash. Up to version 2.28 it clears
// current->plug while it maps a buffer, which the scheduler of Linux 6.12 uses when it
// runs the task again. Several first READs at a time make that likely, so Culvert issues
// one at a time in a process; but one is enough if other programs want its processor.
func panics(module, kernel string) string {
	var mv, mm, kv, km int
	module = strings.ToLower(module)
	at := strings.LastIndex(module, "version:")
	if at < 0 {
		return ""
	}
	if _, err := fmt.Sscanf(module[at+len("version:"):], "%d.%d", &mv, &mm); err != nil {
		return ""
	}
	if _, err := fmt.Sscanf(kernel, "%d.%d", &kv, &km); err != nil {
		return ""
	}
	if mv > 2 || mv == 2 && mm > 28 || kv < 6 || kv == 6 && km < 12 {
		return ""
	}
	return fmt.Sprintf("WARNING: nvidia-fs %d.%d can panic Linux %d.%d if the first read into a buffer is interrupted by other programs", mv, mm, kv, km)
}

// firstLine returns the first line of a file, without "Version: ".
func firstLine(root fs.FS, path string) string {
	line, _, _ := strings.Cut(sysfs.Text(root, path), "\n")
	return strings.TrimPrefix(line, "Version: ")
}

func kernelVersion(root fs.FS) string {
	text, err := fs.ReadFile(root, "proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown: " + err.Error()
	}
	return strings.TrimSpace(string(text))
}
