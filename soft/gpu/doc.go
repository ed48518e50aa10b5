// Package gpu is a GPU in software: a [gpu.Driver] for machines that have
// none. It passes the same suite as CUDA's driver (package gpu/gputest) and
// answers bad input with the same codes. Importers usually call it softgpu.
//
// # Memory
//
// A GPU's memory is an arena of 64 KiB frames. An allocation is a range of
// device addresses with a list of frames behind it; with [Config.Scatter] the
// frames of one allocation are not neighbours. Device addresses are reserved
// but not accessible, so a stray access of the CPU faults as it should. Memory
// comes back dirty: frames keep their bytes when they are freed, and frames
// that were never used hold a pattern.
//
// As on hardware, memory is taken from a GPU in blocks of 2 MiB. Allocations
// below 1 MiB share a block; larger ones have blocks of their own. Pins, frame
// numbers and OnFree speak of blocks, because that is all that a GPU's memory
// manager and its kernel driver know.
//
// # Who may touch frames
//
// Bytes of device memory are reachable through copies, kernels and loans
// alone: [GPU.Acquire] is how the models of drives, NICs and kernel modules get at
// them, and a loan keeps the frames from being reused. The frames can be mapped
// a second time, as a BAR1 window would, through [GPU.Arena].
//
// # When a kernel goes wrong
//
// A kernel that leaves its memory loses more than its context. As on hardware,
// all contexts of the GPU get the error from then on, and no new one can be
// made, not even when the others are gone: CUDA's documents want the process to
// be started again. Here a new [Driver] does.
//
// # What is not modelled
//
// Writes of other devices are visible at once, so FlushWrites has nothing to
// do; synchronous copies are always complete when they return, whatever
// SYNC_MEMOPS says; and a kernel that leaves its allocation is always caught,
// while hardware lets it run over neighbours in the same block.
package gpu
