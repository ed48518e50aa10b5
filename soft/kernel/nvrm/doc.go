// Package nvrm emulates NVIDIA's resource manager, as far as a process needs it to map
// GPU memory through BAR1: the device nodes /dev/nvidiactl and /dev/nvidia0, 1, …
//
// Rules and status codes are those of the open kernel modules, release 580. A client
// belongs to the /dev/nvidiactl that made it. A device object needs an open device node
// of its GPU. A file of a device node can map one mapping, at offset 0 and in its whole
// length. Freeing an object that does not exist succeeds.
//
// # Differences
//
// Freeing an object under a mapping leaves, on hardware, addresses that show what is
// allocated there next. Here accesses fault, so that the mistake is found.
//
// O_DIRECT into a mapping fails on hardware (EFAULT), because the kernel cannot pin pages
// of a device. Here it works: the memory is ordinary memory elsewhere. (memfd_secret
// refuses pinning, but in every mapping, and the emulated drives pin the same pages;
// udmabuf needs a kernel module and a privileged device node.)
//
// A descriptor of exported memory can be imported only in the process that runs the
// software GPU. A dma-buf is accepted, too.
package nvrm
