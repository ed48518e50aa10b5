// Package nvrm is the twin of NVIDIA's resource manager, as far as a process
// needs it to map GPU memory through BAR1: the nodes /dev/nvidiactl and
// /dev/nvidia0 and so on, over the cards of a software GPU.
//
// Rules and status codes are those of the open kernel modules, release 580:
// a client belongs to the /dev/nvidiactl that made it; a device object needs an
// open node of its GPU; a node takes one mapping, which is mapped at offset 0
// and in its whole length; freeing an object that does not exist succeeds.
//
// # Where it differs
//
// Freeing an object under a live mapping leaves, on hardware, addresses that
// lead to whatever is allocated there next. Here they become inaccessible, so
// that the mistake shows.
//
// O_DIRECT into a mapping fails on hardware (EFAULT), because the kernel cannot
// pin pages of a device. Here it works: a process cannot make such a mapping of
// memory that must also be ordinary memory elsewhere. (memfd_secret refuses to
// be pinned, but in every mapping, and the drives of the software machine pin
// the same pages; udmabuf would do, but needs a module and a privileged node.)
//
// A descriptor of exported memory can be imported in the process that runs the
// software GPU, not in others. A dma-buf is taken for one too.
package nvrm
