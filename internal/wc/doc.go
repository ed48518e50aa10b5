// Package wc copies to and from write-combining memory, such as a BAR1 mapping of
// GPU memory.
//
// Such memory is not cached. Stores are collected in a few small buffers and sent
// as bursts, so they must be wide and sequential. Every ordinary load is a round
// trip over the bus. A streaming load fetches a 64-byte line and is about fifteen
// times faster.
//
// On amd64 with AVX2 the copies use non-temporal instructions. Elsewhere they are
// the built-in copy, which is slow for loads.
//
// # Ordering
//
// Stores are posted: when [Store] returns, the bytes may still be in flight. After
// [Fence], a device that is notified by a later store, system call or doorbell
// sees them. [Load] sees all earlier stores of the same goroutine, and fenced
// stores of others.
//
// # Faults
//
// If the device is removed, an access to its memory raises SIGBUS. [Guard] turns
// that into an error.
package wc
