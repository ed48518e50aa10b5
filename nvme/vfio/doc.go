// Package vfio is the nvme.Transport over Linux's vfio. The drive is bound to
// vfio-pci instead of its kernel driver, its registers are mapped into the
// process, and an IOMMU limits its DMA to memory that the process has mapped. It
// needs only modules of the Linux kernel.
//
//	vfio.Bind("0000:01:00.0") // as root; the drive's block device disappears
//	t, err := vfio.Open("0000:01:00.0", vfio.Config{})
//	c, err := nvme.Open(t, nvme.Config{})
//
// # Memory of other devices
//
// The kernel also accepts a mapping of another device's BAR for DMA. So a drive
// can write directly to the memory of a GPU whose BAR1 is mapped into the
// process, without nvidia-fs or libnvm: [Config.View] makes such a mapping. An
// IOMMU or a host bridge may block requests between devices; then commands fail
// with nvme.StatusDataTransferError. The kernel is not notified when GPU memory
// is freed: unmap it first.
//
// # Privileges
//
// Open needs read and write access to /dev/vfio/N. The locked memory limit
// (ulimit -l) limits the size of mapped memory. Bind needs root.
package vfio
