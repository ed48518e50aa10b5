package rdma

import (
	"strings"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

// Each complaint that users have about registrations has a cause and a fix of its own.
func TestExplain(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		f          Facts
		cause, fix string
	}{
		"module missing":        {Facts{Errno: syscall.EFAULT, Method: PeerMemory, Peermem: &no}, "no kernel module", "modprobe nvidia-peermem"},
		"module does not claim": {Facts{Errno: syscall.EFAULT, Method: PeerMemory, Peermem: &yes}, "did not claim", "rmmod nvidia-peermem"},
		"module unknown":        {Facts{Errno: syscall.EFAULT, Method: PeerMemory}, "not mapped, or it is GPU memory", "modprobe nvidia-peermem"},
		"managed memory":        {Facts{Errno: syscall.EFAULT, Method: PeerMemory, Kind: gpu.KindManaged, Peermem: &yes}, "managed memory", "device memory"},
		"managed, any errno":    {Facts{Errno: syscall.EOPNOTSUPP, Method: ViaDMABuf, Kind: gpu.KindManaged}, "host's copy", "staging"},
		"no PCIe mapping":       {Facts{Method: ViaPCIeDMABuf}, "PCIe addresses", "12.8"},
		"closed driver, PCIe":   {Facts{Errno: syscall.EOPNOTSUPP, Method: ViaPCIeDMABuf, OpenModules: &no}, "open NVIDIA kernel modules", "nvidia-open"},
		"closed driver":         {Facts{Errno: syscall.EOPNOTSUPP, Method: ViaDMABuf, OpenModules: &no}, "open NVIDIA kernel modules", "nvidia-open"},
		"old driver":            {Facts{Errno: syscall.EOPNOTSUPP, Method: ViaDMABuf, OpenModules: &yes, Driver: 470}, "driver 470", "update the driver"},
		"old kernel":            {Facts{Errno: syscall.EPROTONOSUPPORT, Method: ViaDMABuf, Kernel: [2]int{5, 11}}, "Linux 5.11", "update the kernel"},
		"kernel is new enough":  {Facts{Errno: syscall.EPROTONOSUPPORT, Method: ViaDMABuf, Kernel: [2]int{6, 1}}, "adapter's driver", "rdma-core"},
		"ACS":                   {Facts{Errno: syscall.EOPNOTSUPP, Method: ViaDMABuf, ACS: &yes}, "ACS", "disable ACS"},
		"IOMMU and far":         {Facts{Errno: syscall.EOPNOTSUPP, Method: ViaDMABuf, IOMMU: &yes, Far: &yes}, "IOMMU", "iommu=pt"},
		"far":                   {Facts{Errno: syscall.EOPNOTSUPP, Method: ViaDMABuf, IOMMU: &no, Far: &yes}, "no PCIe switch in common", "below the GPU's switch"},
		"limit":                 {Facts{Errno: syscall.ENOMEM, Len: 1 << 30, Memlock: 64 << 10}, "limit of locked memory, 65536 bytes", "ulimit -l unlimited"},
		"BAR1":                  {Facts{Errno: syscall.ENOMEM, Len: 1 << 30, BAR1Free: 200 << 20}, "BAR1", "resizable BAR"},
		"no memory":             {Facts{Errno: syscall.ENOMEM, Len: 1 << 30}, "translation entries", "smaller regions"},
		"range":                 {Facts{Errno: syscall.EINVAL, Method: PeerMemory}, "one allocation", "whole allocations"},
		"page offset":           {Facts{Errno: syscall.EINVAL, Method: ViaDMABuf}, "within a page", "whole pages"},
		"rights":                {Facts{Errno: syscall.EPERM}, "may not use", "CAP_IPC_LOCK"},
		"TCP":                   {Facts{Errno: syscall.EFAULT, Provider: "tcp", Method: PeerMemory}, "TCP", "staging"},
		"anything else":         {Facts{Errno: syscall.EIO}, "refused", "dmesg"},
	} {
		cause, fix := Explain(c.f)
		if !strings.Contains(cause, c.cause) || !strings.Contains(fix, c.fix) {
			t.Errorf("%s: cause %q (want %q), fix %q (want %q)", name, cause, c.cause, fix, c.fix)
		}
	}
}

// Names of methods are words of a command line, and each is read back.
func TestParseMethod(t *testing.T) {
	for name, want := range map[string]Method{
		"peer-memory": PeerMemory, "dma-buf/pcie": ViaPCIeDMABuf, "dma-buf": ViaDMABuf, "staging": Staging,
	} {
		if got, err := ParseMethod(name); got != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := ParseMethod("peer"); err == nil || !strings.Contains(err.Error(), "peer-memory, dma-buf/pcie, dma-buf, staging") {
		t.Errorf("an unknown method: %v", err)
	}
}
