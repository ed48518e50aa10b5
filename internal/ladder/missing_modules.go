package ladder

import (
	"bufio"
	"io/fs"
	"path"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/route"
)

// This file says which kernel module, node or driver a direct route misses, and what
// to do about it. Other reasons are in the files of the routes.

// noP2PDMA says why a GPU has no memory for O_DIRECT. For a real GPU nothing else is
// checked: driver options, BAR1 and kernel matter to NVIDIA's library alone, and
// changing them would not make this route available.
func noP2PDMA(os dev.OS) *route.Decline {
	if !dev.Simulated(os) {
		return decline(route.P2PDMA, "client", "mapping NVIDIA GPU memory as P2PDMA pages is not implemented "+
			"(NVIDIA's libcufile can, in programs that call it themselves: use_pci_p2pdma in cufile.json)", "")
	}
	const lack = "the memory of this software GPU is not that of a PCI device"
	peers, err := fs.Glob(os.FS(), "sys/bus/pci/devices/*/p2pmem/allocate")
	if err != nil || len(peers) == 0 {
		return decline(route.P2PDMA, "machine", lack+", and no device here has peer memory (/sys/bus/pci/devices/*/p2pmem)", "")
	}
	return decline(route.P2PDMA, "machine", lack, "set CULVERT_SOFT=peer="+path.Base(path.Dir(path.Dir(peers[0]))))
}

// lookNVFS says why the route is not tried. On a real machine, raw requests to a
// module with known kernel crashes must be enabled by the user.
func lookNVFS(o dev.OS) *route.Decline {
	const version = "proc/driver/nvidia-fs/version"
	asked := env.Get(nvfsSwitch)
	soft := dev.Simulated(o)
	if _, err := fs.Stat(o.FS(), version); err != nil {
		if d := onWSL(route.NVFS, o); d != nil {
			return d
		}
		if soft {
			return decline(route.NVFS, "kernel module", "a software GPU with the memory of a PCI device has no nvidia-fs", "leave peer= out of CULVERT_SOFT")
		}
		return decline(route.NVFS, "kernel module", "nvidia-fs is not loaded: no /"+version, "install nvidia-fs and run: modprobe nvidia-fs")
	}
	switch {
	case soft && asked == "0":
		return decline(route.NVFS, "consent", nvfsSwitch+"=0 disables the route", "unset "+nvfsSwitch)
	case !soft && asked != "1":
		return decline(route.NVFS, "consent", "nvidia-fs is loaded but disabled: some of its failures crash the kernel",
			"set "+nvfsSwitch+"=1; NVIDIA's libcufile (route vendor) needs no consent")
	}
	return nil
}

// notDirect says why NVIDIA's library would stage through host memory here.
func notDirect(os dev.OS) *route.Decline {
	root := os.FS()
	const modules = "proc/driver/nvidia-fs/modules"
	text, err := fs.ReadFile(root, modules)
	if err != nil {
		if d := onWSL(route.Vendor, os); d != nil {
			return d
		}
		return decline(route.Vendor, "direct", "NVIDIA's libcufile would stage through host memory: nvidia-fs is not loaded (no /"+modules+")",
			"install nvidia-fs and run: modprobe nvidia-fs")
	}
	if _, err := fs.Stat(root, "dev/nvidia-fs0"); err != nil {
		return decline(route.Vendor, "direct", "NVIDIA's libcufile would stage through host memory: nvidia-fs is loaded, but there is no /dev/nvidia-fs0",
			"hand the node to the container: --device /dev/nvidia-fs0")
	}
	// Drivers register with nvidia-fs when its device node is opened, by a function
	// that it looks up among the kernel's symbols.
	hook := func(symbol string) bool { return strings.HasSuffix(symbol, "_register_nvfs_dma_ops") }
	if !strings.Contains(string(text), "nvme") && !hasSymbol(root, hook) {
		return decline(route.Vendor, "direct", "NVIDIA's libcufile would stage through host memory: nvidia-fs knows no storage driver (/"+modules+")",
			"load a storage driver that registers with nvidia-fs (NVIDIA's DOCA or MLNX_OFED)")
	}
	return nil
}

// onWSL declines a route under WSL, where Windows owns the GPU.
func onWSL(id route.ID, os dev.OS) *route.Decline {
	if !dev.WSL(os) {
		return nil
	}
	return decline(id, "GPU driver", "WSL exposes the GPU through /dev/dxg, without a Linux driver", "run Linux on the machine itself")
}

// hasSymbol looks for a kernel symbol by name; the addresses may be hidden.
func hasSymbol(root fs.FS, is func(string) bool) bool {
	f, err := root.Open("proc/kallsyms")
	if err != nil {
		return false
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if fields := strings.Fields(sc.Text()); len(fields) >= 3 && is(fields[2]) {
			return true
		}
	}
	return false
}
