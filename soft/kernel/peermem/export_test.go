package peermem

import "github.com/culvert-io/culvert/soft/kernel/p2p"

// What the tests on whole machines see of this package. They are in a package of their
// own, because the machine imports this one.
var Segments = segments

// Translated reports whether the attachment goes through the IOMMU.
func (a *Attachment) Translated() bool { return a.dma != nil }

// Page returns the physical address of the first page.
func (b *DMABuf) Page() uint64 { return b.table.Pages[0] }

// NoTicket is the ticket of registrations without invalidation.
const NoTicket = noTicket

// Acquire claims memory for the client with callbacks, or returns nil.
func (n *NVIDIA) Acquire(t *p2p.Task, addr, size uint64) Memory {
	return n.acquire(t, addr, size, false, 0)
}

// RunCallback has t look like the thread that runs the free callback of x.
func RunCallback(x Memory, t *p2p.Task) { x.(*nvContext).callback = t }
