// Package rm maps GPU memory into the process through BAR1. The process is its own
// client of NVIDIA's resource manager (RM), so no further kernel module is needed.
//
// This is the client. The emulated resource manager is soft/kernel/nvrm; the RM of
// soft/kernel/p2p is the side of nvidia-p2p, which kernel modules call.
//
// A [Mapper] maps ranges of one GPU's memory ([Mapping]). A [Client] opens
// /dev/nvidiactl; in it each GPU is a device and each mapped allocation an object.
//
// # Which memory
//
// Memory of gpu.KindVirtual is exported as a descriptor and imported, by
// documented calls. gpu.KindDevice memory of the same process is duplicated from
// CUDA's client, whose handles are not documented. So a mapper first tests this
// with its own memory: CUDA writes random words, and the mapping must show them.
// Then each mapping is compared with what the driver reads, without writing. If
// the driver can map an exported dma-buf, that is preferred, and compared
// likewise. All other memory is rejected with an [*Unavailable].
//
// # Ordering
//
// CPU stores are not ordered with streams: no GPU work may use a range while the
// CPU writes it. GPU work submitted after a fence (wc.Fence, or any system call)
// sees the stores.
//
// Before the CPU loads data that the GPU or a copy wrote, the writer must be
// synchronized, also after the driver's synchronous copies: a small copy from
// pageable memory returns before its bytes are in GPU memory.
//
// # Lifetime
//
// A mapping belongs to memory, not to an address. Memory that its owner frees
// stays allocated until its last mapping is closed, and stores to the mapping
// still go there, even if the address is already reused. Close mappings before
// freeing their memory.
//
// The kernel does not remove a mapping when its object is freed: the addresses
// would show other memory. So this package always unmaps before it frees. If it
// cannot unmap, it never frees the object.
package rm
