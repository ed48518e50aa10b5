// Package cuda implements package gpu for NVIDIA hardware, through libcuda.so.1,
// which it loads at run time, without cgo.
//
// # Which library
//
// [Open] tries the usual names and paths, or only the file that the environment
// variable CULVERT_LIBCUDA names. It rejects Culvert's own software libcuda with
// [ErrOwnLibrary]: a driver that loaded it would call itself.
//
// # Threads
//
// CUDA's current context belongs to a thread. Every call here locks the
// goroutine to its thread, makes the device's context current and calls the
// driver. The context stays current on that thread. Querying the current
// context would cost as much as setting it, and a cached answer would be wrong
// once another library sets its own context.
//
// Code that runs on a thread of another library (a callback from C) wraps its
// calls in [Device.Bind], which restores the thread's context. If a bound
// goroutine calls methods of another Device, that Device's context stays
// current.
//
// # Completion
//
// Not all of CUDA's "synchronous" calls are complete when they return: a copy
// from pageable memory may still be in flight from a staging buffer, and copies
// within the device and fills are only queued. Package gpu guarantees
// completion, so these calls also wait for the default stream (callAndWait).
// Culvert's streams do not synchronise with the default stream.
package cuda
