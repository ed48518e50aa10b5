// Package pcie is a PCIe fabric in software: host bridges, root ports, switches,
// devices with BARs, an IOMMU, and the host memory beside them.
//
// # Lending
//
// The fabric does not copy. A device that wants to do DMA asks its [Port] for
// the memory behind a bus range; the fabric translates the addresses, checks
// that the request can get there, and lends the bytes themselves:
//
//	loan, err := port.Lend(bus, n, pcie.Write)
//	if err != nil {
//		return err // nothing was moved
//	}
//	moved, err := unix.Preadv(fd, loan.Segs(), off)
//	return errors.Join(err, loan.Return(moved))
//
// So the drive of a software machine reads a file straight into the frames of a
// software GPU. While a loan is out nobody can take the memory away: whoever
// removes a window or a mapping waits for its loans to come back, and lends no
// more. A loan is all or nothing: a range of which one byte cannot be reached is
// refused before anything moves.
//
// # Who reaches whom
//
// A request for an address in the window of a device below the same switch goes
// straight there, and sees no IOMMU, unless access control services (ACS) on the
// way send it up. Everything else goes up to the root, through the IOMMU, and
// from there to host memory or, where the host bridge forwards between its
// ports, down to another device. [Peers] says what Linux makes of this for
// P2PDMA and dma-buf, which ask before they map. nvidia_p2p does not ask: there
// the fabric refuses the DMA itself.
//
// # Counting
//
// Return counts the bytes that moved on every link they crossed and, where they
// ended in host memory, there ([Fabric.HostTraffic]). A transfer that claims to
// bypass host memory can be checked.
//
// # Lock order
//
// Fabric.mu, then Function.mu, then a gate. Targets are called with none held.
package pcie
