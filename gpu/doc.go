// Package gpu is Culvert's interface to GPUs: memory of several kinds in one
// address space, streams, events and kernels.
//
// Two drivers implement it. Package gpu/cuda drives NVIDIA hardware through
// libcuda.so.1, without cgo; package soft/gpu is a GPU in software. Both pass the
// same conformance suite (gpu/gputest) and return the same [Code] for invalid
// input, so code written for one works on the other.
//
// # Addresses
//
// Device memory has an [Addr], never a []byte, and a CPU access to it faults on
// both drivers. CPU and GPU can access pinned and managed memory: its Addr is the
// host pointer, and [HostBytes] makes a slice of it.
//
// # Contexts and goroutines
//
// CUDA has a current context per operating-system thread. Every method of a
// [Device] makes the device's context current, so it may be called from any
// goroutine. Use [Device.Bind] to call other libraries that need a current
// context.
//
// # Ordering
//
// A synchronous call is complete when it returns. Work on a [Stream] runs in the
// order of its calls; streams are independent of each other and of synchronous
// calls. Memory used by a stream must stay valid until that work is done.
package gpu
