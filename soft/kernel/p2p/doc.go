// Package p2p emulates nvidia_p2p_*: kernel modules pin GPU memory with it, get
// bus addresses, and lose the memory when its owner frees it. It is the resource
// manager's implementation, for discrete GPUs: 64 KiB pages of one allocation,
// seen through BAR1. A client's callback runs only when the memory is lost: freed
// by its owner, or with the process. Persistent pins have no callback and outlive
// the owner's free.
//
// # The life of a pin
//
// Exactly one of two things ends a callback pin: put_pages, or a revoke, which
// calls the client back and then destroys its DMA mappings, its page table and
// its window in BAR1. Whoever comes second waits for the first. Both wait for
// DMA in flight; after them no device can touch the pages. A callback must not
// call put_pages on its own table: that would wait for itself, and is refused
// with EDEADLK.
//
// # Processes
//
// Modules act for the process that calls them. A [Process] is one such, and a
// [Task] a thread of it: what the kernel calls current. The program that the
// software machine runs in is RM.Self.
//
// # Sync points
//
// p2p.get.acquired, .pinned, .registered, .done; p2p.put, .marked, .unmapped,
// .hidden, .woken;
// p2p.revoke, .begun, .called, .unmapped, .hidden, .done, .woken; p2p.map,
// p2p.unmap. The id is the pin's number.
//
// # Lock order
//
// RM.mu, then aperture.mu. Neither is held while callbacks run, DMA is waited
// for, or a sync point is passed.
package p2p
