package nvmerdma

import "github.com/culvert-io/culvert/soft/kernel"

// Show has /sys show the drive of the machine as one that a network adapter reaches.
func Show(o *kernel.OS, adapter string) {
	text := func(s string) func() []byte { return func() []byte { return []byte(s + "\n") } }
	o.Mount("sys/devices/virtual/block/nvme90n1/device", kernel.Tree{
		"transport": text("rdma"),
		"address":   text("traddr=127.0.0.1,trsvcid=4420,host_iface=" + adapter),
	})
}
