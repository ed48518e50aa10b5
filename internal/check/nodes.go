package check

import (
	"errors"
	"io/fs"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/dev/gdrdrv"
)

// A Node is a device file that a client would open.
type Node struct {
	Path    string `json:"path"`
	Present bool   `json:"present"`
	Usable  bool   `json:"usable"` // it opens and, where we know what to ask, answers
	Err     string `json:"error,omitempty"`
	For     string `json:"for"`
	Version string `json:"version,omitempty"` // that the module behind it answers
	Fix     string `json:"fix,omitempty"`     // where it is not usable
	Note    string `json:"note,omitempty"`    // where there is nothing to be done about it
}

var nodes = []struct {
	path, purpose, fix string
	ask                func(dev.OS) (version string, err error) // nil where there is no version to ask for
}{
	{"/dev/nvidiactl", "the resource manager: BAR1 mappings without a kernel module", noDriver, nil},
	{"/dev/nvidia0", "the first GPU", noDriver, nil},
	{"/dev/nvidia-uvm", "managed memory", "modprobe nvidia-uvm", nil},
	{"/dev/nvidia-fs0", "GPUDirect Storage by nvidia-fs", "install nvidia-fs and run: modprobe nvidia-fs", nil},
	{"/dev/gdrdrv", "GDRCopy", "install gdrdrv of GDRCopy and run: modprobe gdrdrv; not needed where /dev/nvidiactl can map BAR1", askGDRCopy},
	{"/dev/gpumem", "gpumem: physical pages of GPU memory", "needed only for devices of your own: build gpumem of the gpudma project and run: insmod gpumem.ko", nil},
	{"/dev/libnvm0", "user-space NVMe by libnvm", "needed only without vfio: load libnvm's module and bind a drive to it", nil},
	{"/dev/vfio/vfio", "user-space NVMe by vfio", "modprobe vfio-pci", nil},
	{"/dev/infiniband/uverbs0", "RDMA", "install an RDMA card and run: modprobe ib_uverbs", nil},
}

const noDriver = "install NVIDIA's driver, or hand the node to the container"

// lookNodes opens each node: permissions are found out by trying, and nodes of a
// software machine are in no directory.
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
			node.Err, node.Fix = err.Error(), "give this user access to the node"
		default:
			node.Err, node.Fix = err.Error(), n.fix
		}
		list = append(list, node)
	}
	return list
}

// none is what to say of something that is not there and that nobody can bring to
// this kind of machine; "" where somebody can.
func none(os dev.OS) string {
	switch {
	case dev.Simulated(os):
		return "the software machine has none"
	case dev.WSL(os):
		return "WSL has none: run Linux on the machine itself"
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
