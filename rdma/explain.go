package rdma

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
)

// A Method is a way to make GPU memory usable for an adapter.
type Method string

// The methods, in the order in which they are tried. Staging is used only if the caller
// allows it: the bytes then cross host memory.
const (
	PeerMemory    Method = "peer memory"  // the address, through a peer memory client such as nvidia-peermem
	ViaPCIeDMABuf Method = "dma-buf/pcie" // a descriptor that the GPU driver exports, with addresses of its BAR
	ViaDMABuf     Method = "dma-buf"      // the same, with the addresses that the driver prefers
	Staging       Method = "staging"      // pinned host memory beside it, and copies
)

// ParseMethod reads the name of a method, with a hyphen for each space: "peer-memory".
func ParseMethod(name string) (Method, error) {
	var names []string
	for _, m := range append(DirectMethods(), Staging) {
		text := strings.ReplaceAll(string(m), " ", "-")
		if name == text {
			return m, nil
		}
		names = append(names, text)
	}
	return "", fmt.Errorf("unknown method of registration %q (methods: %s)", name, strings.Join(names, ", "))
}

// exported reports whether the GPU driver exports a descriptor.
func (m Method) exported() bool { return m == ViaDMABuf || m == ViaPCIeDMABuf }

// Facts are what is known when a registration failed. Unknown facts are zero.
type Facts struct {
	Method   Method
	Provider string
	Errno    syscall.Errno
	Kind     gpu.Kind // of the memory
	Len      uint64

	Peermem     *bool  // nvidia_peermem (or nv_peer_mem) is loaded
	OpenModules *bool  // the NVIDIA kernel modules are the open ones
	Driver      int    // major version of the NVIDIA driver
	Kernel      [2]int // version of Linux
	Memlock     uint64 // limit of locked memory in bytes; 0 if unknown or unlimited
	BAR1Free    uint64 // bytes; 0 if unknown
	ACS, IOMMU  *bool  // ACS redirects between adapter and GPU; the IOMMU translates
	Far         *bool  // adapter and GPU have no PCIe switch in common
}

// Explain gives the cause of a failed registration and its fix. It is a pure function.
func Explain(f Facts) (cause, fix string) {
	is := func(p *bool, v bool) bool { return p != nil && *p == v }
	switch {
	case f.Provider == "tcp":
		return "TCP moves bytes with the CPU, which cannot reach GPU memory", "allow staging, or use an adapter"
	case f.Kind == gpu.KindManaged:
		return "managed memory moves between host and GPU, so that it cannot be pinned: an adapter would reach the host's copy of it", "allocate device memory, or allow staging"
	case f.Method == ViaPCIeDMABuf && f.Errno == 0:
		return "the GPU driver exports no dma-buf of PCIe addresses", "update to CUDA 12.8, or use the other methods"
	case f.Errno == syscall.EFAULT && is(f.Peermem, false):
		return "no kernel module offers GPU memory to the RDMA core", "modprobe nvidia-peermem, or register a dma-buf"
	case f.Errno == syscall.EFAULT && is(f.Peermem, true):
		return "nvidia-peermem is loaded and did not claim the address: it was loaded before the RDMA modules, was built for another driver, or the memory is not device memory", "rmmod nvidia-peermem && modprobe nvidia-peermem, and look into dmesg; or register a dma-buf"
	case f.Errno == syscall.EFAULT:
		return "the address is not mapped, or it is GPU memory and no peer memory client claimed it", "modprobe nvidia-peermem, or register a dma-buf"
	case f.Method.exported() && (f.Errno == syscall.EOPNOTSUPP || f.Errno == syscall.EPROTONOSUPPORT):
		return noDMABuf(f, is)
	case f.Errno == syscall.ENOMEM && f.Memlock != 0 && f.Memlock < f.Len:
		return fmt.Sprintf("%d bytes exceed the limit of locked memory, %d bytes", f.Len, f.Memlock), "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit"
	case f.Errno == syscall.ENOMEM && f.BAR1Free != 0 && f.BAR1Free < f.Len:
		return fmt.Sprintf("%d bytes do not fit into the free part of BAR1, %d bytes", f.Len, f.BAR1Free), "register smaller regions, or enable resizable BAR in the firmware"
	case f.Errno == syscall.ENOMEM:
		return "the kernel has no memory, BAR1 or translation entries left for the region", "register smaller regions, and check ulimit -l"
	case f.Errno == syscall.EINVAL && f.Method == PeerMemory:
		return "the range is not in one allocation, or nvidia_p2p rejects this kind of memory", "register whole allocations of cuMemAlloc, or a dma-buf"
	case f.Errno == syscall.EINVAL:
		return "address and offset differ within a page, the range exceeds the exported memory, or a right is missing", "export whole pages that contain the range, with LocalWrite for remote writes"
	case f.Errno == syscall.EPERM || f.Errno == syscall.EACCES:
		return "the process may not use the device", "give it /dev/infiniband/uverbs* and, in a container, CAP_IPC_LOCK"
	}
	return "the kernel refused the registration", "look into dmesg"
}

// noDMABuf is why a dma-buf was not accepted.
func noDMABuf(f Facts, is func(*bool, bool) bool) (cause, fix string) {
	switch {
	case is(f.OpenModules, false):
		return "only the open NVIDIA kernel modules export a dma-buf", "install the open kernel modules (nvidia-open), or modprobe nvidia-peermem"
	case f.Driver != 0 && f.Driver < 515:
		return fmt.Sprintf("NVIDIA driver %d exports no dma-buf, 515 does", f.Driver), "update the driver, or modprobe nvidia-peermem"
	case f.Kernel != [2]int{} && (f.Kernel[0] < 5 || f.Kernel[0] == 5 && f.Kernel[1] < 12):
		return fmt.Sprintf("Linux %d.%d has no dma-buf for RDMA, 5.12 has", f.Kernel[0], f.Kernel[1]), "update the kernel, or modprobe nvidia-peermem"
	case is(f.ACS, true) || is(f.Far, true) && is(f.IOMMU, true):
		return "PCIe access control (ACS) or the IOMMU sends requests between adapter and GPU through the root, which does not forward them", "disable ACS on the switch (setpci), set iommu=pt, or use an adapter below the GPU's switch"
	case is(f.Far, true):
		return "adapter and GPU have no PCIe switch in common, and the host bridge does not forward between them", "use an adapter below the GPU's switch"
	}
	return "the adapter's driver cannot import a dma-buf", "update rdma-core and the kernel, or modprobe nvidia-peermem"
}
