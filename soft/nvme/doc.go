// Package nvme emulates an NVMe controller on the PCIe fabric of a software machine:
// registers in BAR0, admin and I/O queues with doorbells and phase tags, PRP lists,
// Identify, Read, Write, Flush, Abort, status codes.
//
// The controller reaches memory only through its [pcie.Function]. It fetches
// commands, reads PRP lists and posts completions by DMA. For data it gives the
// acquired segments to the [Medium], so that a file is read directly into GPU memory
// and the fabric's counters are right.
//
// # Registers
//
// Store32 takes effect at once. A program that maps BAR0 ([Controller.MapBAR]) stores
// into memory, as on hardware; while there is such a mapping the controller polls its
// registers. A peer that rings a doorbell by DMA takes effect when it releases the
// access.
//
// # Commands and threads
//
// Workers take a few commands at a time from queues with a rung doorbell, so that
// commands of one queue complete in any order. A worker never waits without limit: a
// completion without room in the queue, or a command that a fault delays, is parked.
//
// # Sync points
//
// nvme.fetched, nvme.acquired, nvme.moved and nvme.post. The id is that of the
// submission queue.
//
// # Lock order
//
// Controller.mu, subQueue.mu, compQueue.mu, then the fabric's.
package nvme
