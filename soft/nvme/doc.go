// Package nvme is an NVMe controller in software, on the PCIe fabric of a
// software machine. A driver finds what the specification promises: registers
// in BAR0, admin and I/O queues with doorbells and phase tags, PRP lists,
// Identify, Read, Write, Flush, Abort, and errors as status codes.
//
// The controller reaches memory through its [pcie.Function] alone. It fetches
// commands from queues, reads PRP lists and posts completions by DMA, and it
// moves data by handing the lent segments to the [Medium], so a file is read
// straight into the frames of a GPU and the fabric's counters are right.
//
// # Registers
//
// A program that calls Load32 and Store32 has its stores noticed at once. One
// that maps BAR0 ([Controller.MapBAR]) stores into plain memory, as on hardware;
// then the controller looks at its registers again and again for as long as
// there is such a mapping. A peer that rings a doorbell by DMA is noticed when
// it gives the loan back.
//
// # Commands and threads
//
// Workers take commands from queues with a doorbell rung, a few at a time, and
// carry them out, so commands of one queue complete in any order. Nothing that
// may take long without end is waited for in a worker: a completion for which
// the completion queue has no room, or a command that a fault holds up, is
// parked.
//
// # Sync points
//
// nvme.fetched, nvme.acquired, nvme.moved and nvme.post. The id is that of the
// submission queue.
//
// # Lock order
//
// Controller.mu, subQueue.mu, compQueue.mu, dispatcher.mu; the fabric's come
// after all of them.
package nvme
