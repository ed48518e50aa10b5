// Package vfio reaches NVMe controllers through Linux's vfio: the drive is
// taken from its kernel driver and bound to vfio-pci, its registers are mapped
// into the process, and an IOMMU confines its DMA to memory that the process
// has mapped for it. It needs no module beside the kernel's own.
//
//	vfio.Bind("0000:01:00.0") // as root; the drive's block device vanishes
//	t, err := vfio.Open("0000:01:00.0", vfio.Config{})
//	c, err := nvme.Open(t, nvme.Config{})
//
// # Memory of other devices
//
// The kernel also takes a mapping of another device's BAR for DMA. So a drive
// can write straight into the memory of a GPU whose BAR1 is mapped into the
// process, without nvidia-fs or libnvm: [Config.View] makes such a mapping.
// Whether the drive gets there is for the machine to say: an IOMMU or a host
// bridge may refuse requests between devices, and then commands fail with
// nvme.StatusDataTransferError. Nobody tells the kernel when the GPU's memory is
// freed: the view must be unmapped first.
//
// # Privileges
//
// Opening needs read and write access to /dev/vfio/N, and the locked memory
// limit (ulimit -l) bounds what can be mapped. Binding needs root.
package vfio
