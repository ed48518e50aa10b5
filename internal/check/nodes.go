package check

import (
	"errors"
	"io/fs"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/dev/gdrdrv"
)

// A Node is a device node.
type Node struct {
	Path    string `json:"path"`
	Present bool   `json:"present"`
	Usable  bool   `json:"usable"` // it can be opened and, if it has a version, answers
	Err     string `json:"error,omitempty"`
	For     string `json:"for"`
	Version string `json:"version,omitempty"` // of its module
	Fix     string `json:"fix,omitempty"`     // if it is not usable
	Note    string `json:"note,omitempty"`    // if there is no fix
}

var nodes = []struct {
	path, purpose, fix string
	ask                func(dev.OS) (version string, err error) // nil if it has no version
}{
	{"/dev/nvidiactl", "the resource manager: BAR1 mappings without a kernel module", noDriver, nil},
	{"/dev/nvidia0", "the first GPU", noDriver, nil},
	{"/dev/nvidia-uvm", "managed memory", "modprobe nvidia-uvm", nil},
	{"/dev/nvidia-fs0", "GPUDirect Storage by nvidia-fs", "install nvidia-fs and run: modprobe nvidia-fs", nil},
	{"/dev/gdrdrv", "GDRCopy", "install gdrdrv of GDRCopy and run: modprobe gdrdrv; not needed if /dev/nvidiactl can map BAR1", askGDRCopy},
	{"/dev/gpumem", "gpumem: physical pages of GPU memory", "needed only for custom devices: build gpumem of the gpudma project and run: insmod gpumem.ko", nil},
	{"/dev/libnvm0", "user-space NVMe by libnvm", "needed only without vfio: load libnvm's module and bind a drive to it", nil},
	{"/dev/vfio/vfio", "user-space NVMe by vfio", "modprobe vfio-pci", nil},
	{"/dev/infiniband/uverbs0", "RDMA", "install an RDMA card and run: modprobe ib_uverbs", nil},
}

const noDriver = "install NVIDIA's driver, or pass the device node to the container"

// lookNodes opens each device node: that tests permissions, and nodes of a software
// machine are not in a directory.
func lookNodes(os dev.OS) []Node {
	list := make([]Node, 0, len(nodes))
	for _, n := range nodes {
		ask := n.ask
		if ask == nil {
			ask = func(os dev.OS) (string, error) { return "", try(os, n.path) }
		}
		version, err := ask(os)
		node := Node{Path: n.path, For: n.purpose, Present: true, Usable: err == nil, Version: version}
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			node.Present = false
			if node.Note = none(os); node.Note == "" {
				node.Fix = n.fix
			}
		case errors.Is(err, fs.ErrPermission):
			node.Err, node.Fix = err.Error(), "give this user access to the device node"
		default:
			node.Err, node.Fix = err.Error(), n.fix
		}
		list = append(list, node)
	}
	return list
}

// none returns why something cannot exist on this kind of machine; "" if it can.
func none(os dev.OS) string {
	switch {
	case dev.Simulated(os):
		return "the software machine has none"
	case dev.WSL(os):
		return "WSL has none (fix: run Linux without WSL)"
	}
	return ""
}

func try(os dev.OS, path string) error {
	h, err := os.Open(path)
	if err != nil {
		return err
	}
	return h.Close()
}

func askGDRCopy(o dev.OS) (string, error) {
	c, err := gdrdrv.Open(o)
	if err != nil {
		return "", err
	}
	return c.Version().String(), c.Close()
}
