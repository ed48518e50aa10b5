// Package rm maps GPU memory into the CPU's address space through BAR1,
// without a kernel module of anybody but NVIDIA: the process is its own client
// of the driver's resource manager.
//
// A [Client] opens /dev/nvidiactl, a [Device] is one GPU in it, an [Object] is
// memory that was imported or duplicated into it, and a [Mapping] is part of an
// object. A [Mapper] puts them to use: it takes a range of a GPU's memory, finds
// a way to map it, and returns a [Window].
//
// # Which memory
//
// Memory of gpu.KindVirtual is exported as a descriptor and imported, by
// documented calls. Plain gpu.KindDevice memory of the same process is
// duplicated out of CUDA's own client; where CUDA keeps the handles is not
// documented, so a mapper tries it on memory of its own first: random words are
// written by CUDA and read through the mapping. Then each mapping is compared
// with what the driver reads, without writing. On drivers that can map an
// exported dma-buf this is preferred, and compared likewise. Everything else is
// refused with an [*Unavailable] that says what was seen.
//
// # Ordering
//
// CPU stores are not ordered with streams: no GPU work may use a range while
// the CPU writes it. Stores are posted; GPU work submitted after a fence
// (wc.Fence, or any system call) sees them.
//
// Before the CPU loads what the GPU or a copy has written, the writer must be
// synchronised. That includes the driver's synchronous copies: a small copy out
// of pageable memory returns before its bytes are in GPU memory.
//
// # Lifetime
//
// A mapping belongs to memory, not to an address. Memory that its owner frees
// stays allocated until the last window on it is closed, and stores into the
// window still go there, even when the owner's address is in use again for
// something else. Close windows before freeing what they show.
//
// The kernel does not take a mapping away when its object is freed: the
// addresses would lead to whatever is allocated there next. This package
// therefore unmaps before it frees, always, and rather keeps an object for good
// than free it under a mapping that could not be removed.
package rm
