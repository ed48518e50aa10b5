// Package libnvm is the twin of ssd-gpu-dma's kernel module: it maps memory of
// a program for an NVMe controller and lets the program map the controller's
// registers. It takes the same bytes as the module and gives the same answers.
//
// # Peculiarities
//
// The module has some that a client must know, and the twin has them too:
//
//   - A map belongs to the thread that made it. Another thread of the same
//     process cannot unmap it (EINVAL).
//   - Maps are not the file's: they stay when it is closed, until they are
//     unmapped or the module is unloaded.
//   - There is one list for all controllers. A map is found by its address,
//     rounded down to 4 KiB or to 64 KiB: so one that begins at a multiple of
//     64 KiB is taken for any address in the 64 KiB behind it, if it is the
//     older one.
//   - Host memory of which only the first pages are there is mapped as far as
//     it goes, without an error. The words behind are left as they were.
//
// # Where the twin is safer
//
// A map whose addresses cannot be told to the program is undone; the module
// keeps it. A number of pages whose addresses do not fit into memory is ENOMEM;
// the module computes a size that wraps around.
//
// # Lock order
//
// Module.mu, then nothing. It is not held while memory is mapped or unmapped,
// because that waits for DMA and for the free callback, which takes it.
package libnvm
