// Package wc copies into and out of write-combining memory, which is how the
// CPU sees a GPU's memory through BAR1.
//
// Such memory is not cached. Stores gather in a few small buffers and leave as
// bursts when a buffer fills up, so they should be wide and sequential. Every
// ordinary load is a round trip over the bus, and only a streaming load fetches
// a whole 64-byte line at once: it is some fifteen times faster.
//
// On amd64 with AVX2 the copies use non-temporal instructions; elsewhere they
// are the built-in copy, which is correct and, for loads, slow.
//
// # Ordering
//
// Stores are posted: when [Store] returns, the bytes may still be on their way.
// After [Fence], whoever is told of them by a later store, system call or
// doorbell sees them. [Load] sees all earlier stores of the same goroutine, and
// of others that were fenced before it was called.
//
// # Faults
//
// When the device goes away the memory does too, and touching it raises SIGBUS.
// [Guard] turns that into an error.
package wc
