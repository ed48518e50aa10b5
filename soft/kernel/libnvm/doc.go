// Package libnvm emulates ssd-gpu-dma's kernel module. It maps memory of a process for an
// NVMe controller, and the controller's registers into the process.
//
// # As in the module
//
//   - A map belongs to the thread that made it. Another thread cannot unmap it (EINVAL).
//   - Maps do not belong to the file: they stay until they are unmapped or the module is
//     unloaded.
//   - There is one list for all controllers. A map is found by its address, rounded down
//     to 4 KiB or to 64 KiB: one that begins at a multiple of 64 KiB is found for any
//     address in the 64 KiB behind it, if it is the older one.
//   - Host memory is mapped up to the first missing page, without an error. The remaining
//     words of the result do not change.
//
// # Safer than the module
//
// A map whose addresses cannot be copied to the process is undone; the module keeps it.
// A number of pages that is too large is ENOMEM; in the module the size overflows.
//
// # Lock order
//
// Module.mu is not held while memory is mapped or unmapped, because that waits for DMA
// and for the free callback, which takes it.
package libnvm
