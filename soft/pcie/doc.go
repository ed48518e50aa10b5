// Package pcie emulates a PCIe fabric: host bridges, root ports, switches, devices
// with BARs, an IOMMU and host memory.
//
// # DMA
//
// The fabric does not copy. A device acquires the memory behind a bus range, moves
// bytes, releases it:
//
//	a, err := fn.Acquire(bus, n, pcie.Write)
//	if err != nil {
//		return err // nothing was moved
//	}
//	moved, err := unix.Preadv(fd, a.Segs(), off)
//	return errors.Join(err, a.Release(moved))
//
// So a drive reads a file directly into GPU memory. Removing a window or a mapping
// waits for all accesses. An access covers its whole range or fails.
//
// # Reachability
//
// A request for a window of a device below the same switch goes directly there,
// without the IOMMU, unless access control services (ACS) redirect it. Other requests
// go to the root, through the IOMMU, and then to host memory or, if the host bridge
// forwards between its ports, to another device. [Peers] returns what Linux computes
// from this for P2PDMA and dma-buf before it maps. nvidia_p2p maps without asking, and
// the fabric refuses the DMA.
//
// # Counters
//
// Release counts the bytes moved on each link and in host memory
// ([Fabric.HostTraffic]), so that a claim to bypass host memory can be checked.
//
// # Lock order
//
// Fabric.mu, Function.mu, a gate. Targets are called without locks.
package pcie
