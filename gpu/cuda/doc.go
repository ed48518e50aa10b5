// Package cuda is the driver for NVIDIA hardware: libcuda.so.1, loaded at run
// time, without cgo.
//
// # Which library
//
// [Open] tries the usual names and places; the environment variable
// CULVERT_LIBCUDA names one file instead. Culvert's own software libcuda is
// refused with [ErrOwnLibrary], since a driver that opened it would be driving
// itself.
//
// # Threads
//
// CUDA's current context belongs to a thread. Every call here locks the
// goroutine to its thread, makes the device's context current and calls the
// driver; the context stays current on that thread afterwards. Asking whether
// it already is would cost as much as setting it, and remembering it would be
// wrong as soon as another library in the process sets its own.
//
// Code that runs on a thread it does not own (a callback from C) wraps its
// calls in [Device.Bind], which puts the thread's own context back. A bound
// goroutine that calls another Device's methods leaves that other context
// current.
//
// # Completion
//
// CUDA's "synchronous" calls are not all complete when they return: a copy
// from pageable memory may still be on its way from a staging buffer, and
// copies within the device and fills are only queued. Package gpu promises
// completion, so these calls are followed by a wait for the default stream
// (see settle). Culvert's streams do not synchronise with the default stream.
package cuda
