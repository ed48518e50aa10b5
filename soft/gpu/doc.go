// Package gpu emulates GPUs: it is a [gpu.Driver] for machines that have none. It passes
// the same suite as CUDA's driver (package gpu/gputest) and returns the same codes for
// bad input. Importers usually call it softgpu.
//
// # Memory
//
// A GPU's memory is an arena of 64 KiB frames. An allocation is a range of device
// addresses with a list of frames behind it; with [Config.Scatter] these are not
// neighbours. Device addresses are reserved but not accessible, so that a stray access
// of the CPU faults. Allocated memory is dirty: frames keep their bytes when they are
// freed, and frames that were never used have a pattern, unless Config.Zero is set.
//
// As on hardware, memory is allocated in blocks of 2 MiB. Allocations below 1 MiB share
// a block; larger ones have their own. An [Access], generations and [GPU.OnFree] are
// about blocks, because a GPU's memory manager and its kernel driver know no other unit.
//
// # Access to frames
//
// Device memory is reachable through copies, kernels and accesses alone. Emulated
// drives, NICs and kernel modules call [GPU.Acquire]; the frames are not reused before
// the release. [Access.Mmap] maps them into the process, as a BAR1 mapping does.
//
// # Errors of kernels
//
// A kernel that accesses invalid memory loses more than its context. As on hardware, all
// contexts of the GPU return the error from then on, and no new one can be created, even
// after the others are closed: CUDA's documentation requires a restart of the process.
// Here a new [Driver] is enough.
//
// # What is not emulated
//
// Writes of other devices are visible at once, so FlushWrites has nothing to do.
// Synchronous copies are always complete when they return, whatever SYNC_MEMOPS says. A
// kernel that leaves its allocation is always caught, while hardware lets it overwrite
// neighbours in the same block.
package gpu
