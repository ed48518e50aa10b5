// Package gpu says what a GPU is to the rest of Culvert: memory of several
// kinds in one address space, streams of work, events, and kernels.
//
// Two drivers implement it. Package gpu/cuda reaches NVIDIA hardware through
// libcuda.so.1, without cgo; package soft/gpu is a GPU in software. Both pass
// the same suite (gpu/gputest) and answer bad input with the same [Code], so
// code written against one behaves the same on the other.
//
// # Addresses
//
// Device memory is not host memory. It is named by an [Addr], never by a
// []byte, and a CPU access to it faults on both drivers. Pinned and managed
// memory can be reached from both sides: its Addr is the host pointer, and
// [HostBytes] turns it into a slice.
//
// # Contexts and goroutines
//
// CUDA keeps a current context per operating-system thread, which goroutines
// do not have. Every method of a [Device] therefore makes the device's context
// current by itself and may be called from any goroutine. [Device.Bind] is for
// those who call other libraries that want a current context.
//
// # Ordering
//
// A synchronous call has finished when it returns. Work on a [Stream] runs in
// the order it was enqueued; streams are independent of each other and of
// synchronous calls. Memory given to a stream must stay valid until the stream
// has passed it.
package gpu
