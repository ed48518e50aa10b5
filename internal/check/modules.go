package check

import (
	"io/fs"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
)

// A Node is a device file that a client would open.
type Node struct {
	Path    string `json:"path"`
	Present bool   `json:"present"`
	Usable  bool   `json:"usable"`
	Err     string `json:"error,omitempty"`
	For     string `json:"for"`
}

var nodes = []struct{ path, purpose string }{
	{"/dev/nvidiactl", "the resource manager: BAR1 mappings without a kernel module"},
	{"/dev/nvidia0", "the first GPU"},
	{"/dev/nvidia-uvm", "managed memory"},
	{"/dev/nvidia-fs0", "GPUDirect Storage by nvidia-fs"},
	{"/dev/gdrdrv", "GDRCopy"},
	{"/dev/gpumem", "gpumem: physical pages of GPU memory"},
	{"/dev/libnvm0", "user-space NVMe by libnvm"},
	{"/dev/vfio/vfio", "user-space NVMe by vfio"},
	{"/dev/infiniband/uverbs0", "RDMA"},
}

// lookNodes opens each node that is there: permissions are found out by trying.
func lookNodes(os dev.OS) []Node {
	list := make([]Node, 0, len(nodes))
	for _, n := range nodes {
		node := Node{Path: n.path, For: n.purpose}
		_, err := fs.Stat(os.FS(), strings.TrimPrefix(n.path, "/"))
		node.Present = err == nil
		if node.Present {
			if h, err := os.Open(n.path); err != nil {
				node.Err = err.Error()
			} else {
				node.Usable = true
				h.Close()
			}
		}
		list = append(list, node)
	}
	return list
}

// A Module is a kernel module that one of the direct routes stands on.
type Module struct {
	Name   string `json:"name"`
	Loaded bool   `json:"loaded"`
	Detail string `json:"detail,omitempty"` // its version, where it tells
	For    string `json:"for"`
	Fix    string `json:"fix,omitempty"`
}

var modules = []struct{ name, version, purpose, fix string }{
	{"nvidia", "proc/driver/nvidia/version", "the GPU driver", "install NVIDIA's open kernel modules"},
	{"nvidia_fs", "proc/driver/nvidia-fs/version", "cuFile's direct path (route nvfs)", "install nvidia-fs and run: modprobe nvidia-fs"},
	{"nvidia_peermem", "sys/module/nvidia_peermem/version", "RDMA into GPU memory", "modprobe nvidia-peermem"},
	{"gdrdrv", "sys/module/gdrdrv/version", "GDRCopy", "not needed where /dev/nvidiactl can map BAR1"},
	{"nvme", "sys/module/nvme/version", "local NVMe drives", ""},
}

func lookModules(root fs.FS) []Module {
	list := make([]Module, 0, len(modules))
	for _, m := range modules {
		mod := Module{Name: m.name, For: m.purpose}
		_, err := fs.Stat(root, "sys/module/"+m.name)
		mod.Loaded = err == nil
		if text, err := fs.ReadFile(root, m.version); err == nil {
			mod.Loaded = true
			mod.Detail, _, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
		}
		if !mod.Loaded {
			mod.Fix = m.fix
		}
		list = append(list, mod)
	}
	return list
}

func kernelVersion(root fs.FS) string {
	text, err := fs.ReadFile(root, "proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown: " + err.Error()
	}
	return strings.TrimSpace(string(text))
}
