package check

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/internal/sysfs"
)

// A Peer is a GPU as a NIC reaches it over PCIe.
type Peer struct {
	GPU      int    `json:"gpu"`
	Distance string `json:"distance"` // PIX, PXB, PHB, NODE, SYS as nvidia-smi topo prints them; "unknown"
	Means    string `json:"means"`
	Verdict  string `json:"verdict"` // what IOMMU and access control do to transfers between them
	Fix      string `json:"fix,omitempty"`
}

func lookPeer(root fs.FS, nic string, g GPU) Peer {
	p := Peer{GPU: g.Index}
	p.Distance, p.Means = distance(root, nic, g.PCI)
	p.Verdict, p.Fix = isolation(root, nic, g.PCI)
	return p
}

// distance names the way between two PCI devices.
func distance(root fs.FS, a, b string) (name, means string) {
	x, y := sysfs.Above(root, a), sysfs.Above(root, b)
	if x == nil || y == nil {
		return "unknown", "sysfs does not show both PCI devices"
	}
	common := commonLength(x, y)
	if common == 0 {
		nx, ny := numaNode(root, a), numaNode(root, b)
		if nx != ny || nx < 0 {
			return "SYS", "across the link between processors: expect half the bandwidth or less"
		}
		return "NODE", "across host bridges of one NUMA node"
	}
	// Element 0 is the host bridge, element 1 a root port.
	switch {
	case common < 2:
		return "PHB", "through the host bridge"
	case len(x)+len(y)-2*common <= 2:
		return "PIX", "below one PCIe switch"
	}
	return "PXB", "through several PCIe bridges, without the host bridge"
}

func numaNode(root fs.FS, pci string) int {
	n, err := strconv.Atoi(firstLine(root, "sys/bus/pci/devices/"+pci+"/numa_node"))
	if err != nil {
		return -1
	}
	return n
}

// isolation says what the IOMMU and PCIe access control (ACS) do to transfers between
// two devices. The ACS registers are readable by root only; IOMMU groups show their
// effect to everyone: the kernel puts devices that access control does not separate
// into one group.
func isolation(root fs.FS, a, b string) (verdict, fix string) {
	if a == "" {
		return "no PCI device: the processor moves the data", ""
	}
	x, y := sysfs.Link(root, sysfs.PCI(a)+"/iommu_group"), sysfs.Link(root, sysfs.PCI(b)+"/iommu_group")
	ports := redirecting(root, a, b)
	switch {
	case x == "" || y == "":
		if ports == nil {
			return "no IOMMU: transfers are not translated", ""
		}
		return "no IOMMU; only root can read whether access control of " + strings.Join(ports, " and ") + " redirects transfers",
			"as root: lspci -vvv -s " + ports[0] + " | grep ACSCtl; if it shows ReqRedir+, " + disableRedirect(ports)
	case x == y:
		return "IOMMU group " + x + " has both: access control does not separate them", ""
	}
	kind := firstLine(root, "sys/kernel/iommu_groups/"+x+"/type")
	other := firstLine(root, "sys/kernel/iommu_groups/"+y+"/type")
	if kind != "identity" || other != "identity" {
		return fmt.Sprintf("the IOMMU translates (group %s: %s, group %s: %s): GPUDirect RDMA needs equal addresses", x, cmp.Or(kind, "unknown"), y, cmp.Or(other, "unknown")),
			"boot with iommu=pt, or with the IOMMU off"
	}
	if ports != nil {
		return fmt.Sprintf("IOMMU groups %s and %s: access control of %s sends transfers through the host bridge", x, y, strings.Join(ports, " and ")),
			disableRedirect(ports)
	}
	return "the IOMMU passes addresses through", ""
}

func disableRedirect(ports []string) string {
	return "boot with 'pci=disable_acs_redir=" + strings.Join(ports, ";") + "'"
}

// redirecting lists the ports of a switch between two devices, whose access control
// decides whether transfers go straight through the switch; nil if there is no common
// switch.
func redirecting(root fs.FS, a, b string) (ports []string) {
	x, y := sysfs.Above(root, a), sysfs.Above(root, b)
	common := commonLength(x, y)
	if common < 2 {
		return nil
	}
	for _, way := range [][]string{x, y} {
		if len(way) > common {
			ports = append(ports, way[common])
		}
	}
	return ports
}

func commonLength(x, y []string) (n int) {
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	return n
}

// A Register is a way to register GPU memory with a NIC.
type Register struct {
	Way    string `json:"way"`
	Usable bool   `json:"usable"`
	Why    string `json:"why"`
	Fix    string `json:"fix,omitempty"`
}

const (
	dmaBufAttribute = "DMA_BUF_SUPPORTED"
	openModules     = "install NVIDIA's open kernel modules, version 515 or newer"
)

// lookRegister lists the ways in their order: both direct ones, then staging.
func lookRegister(root fs.FS, softwareNIC bool, gpus []GPU) []Register {
	list := []Register{lookDMABuf(root, softwareNIC, gpus), lookPeerMemory(root, softwareNIC)}
	return append(list, Register{Way: "staging", Usable: true, Why: "through pinned host memory: every byte crosses it once"})
}

func lookDMABuf(root fs.FS, softwareNIC bool, gpus []GPU) Register {
	r := Register{Way: "dma-buf"}
	supported := slices.ContainsFunc(gpus, func(g GPU) bool {
		return slices.ContainsFunc(g.Attributes, func(a Attribute) bool { return a.Name == dmaBufAttribute && a.Known && a.Value != 0 })
	})
	driver := firstLine(root, "proc/driver/nvidia/version")
	switch {
	case softwareNIC:
		r.Why = "a software NIC has no DMA engine"
	case supported:
		r.Usable, r.Why = true, "the GPU driver exports memory as dma-buf"
	case driver == "":
		r.Why, r.Fix = "no NVIDIA driver", openModules
	case !strings.Contains(driver, "Open Kernel Module"):
		r.Why, r.Fix = "the proprietary kernel modules export no dma-buf", openModules
	default:
		r.Why, r.Fix = "the GPU driver does not export memory as dma-buf", "use CUDA 11.7 and Linux 5.12 or newer"
	}
	return r
}

func lookPeerMemory(root fs.FS, softwareNIC bool) Register {
	r := Register{Way: "peer memory"}
	loaded := func(name string) bool {
		_, err := fs.Stat(root, "sys/module/"+name)
		return err == nil
	}
	switch {
	case softwareNIC:
		r.Why = "a software NIC has no DMA engine"
	case loaded("nvidia_peermem"):
		r.Usable, r.Why = true, "nvidia_peermem is loaded"
	case loaded("nv_peer_mem"):
		r.Usable, r.Why = true, "nv_peer_mem is loaded"
	default:
		r.Why, r.Fix = "no peer-memory module: registration of a GPU address fails with EFAULT", "modprobe nvidia-peermem"
	}
	return r
}
