// Package p2p emulates nvidia_p2p_*: kernel modules pin GPU memory with it, get
// bus addresses, and lose the memory when its owner frees it. It is the resource
// manager's implementation, for discrete GPUs: 64 KiB pages of one allocation,
// seen through BAR1. A client's callback runs only when the memory is lost: freed
// by its owner, or with the process. Persistent pins have no callback and outlive
// the owner's free.
//
// # The life of a pin
//
// A callback pin ends by put_pages or by a revoke, never by both. A revoke calls the
// client back, then removes its DMA mappings, its page table and its pages in BAR1. The
// second of the two waits for the first. Both wait for DMA in flight; after them no
// device can access the pages. put_pages inside the callback would wait for itself and
// fails with EDEADLK.
//
// # Processes
//
// Modules act for the calling [Process]. A [Task] is a thread of it, the kernel's
// "current". RM.Self is the process that the software machine runs in.
//
// # Sync points
//
// p2p.get.acquired, .pinned, .registered, .done; p2p.put, .marked, .unmapped, .hidden,
// .woken; p2p.revoke, .begun, .called, .unmapped, .hidden, .done, .woken; p2p.map,
// p2p.unmap. The id is the pin's number.
//
// # Lock order
//
// RM.mu, aperture.mu. Neither is held while callbacks run, DMA is waited for, or a sync
// point is passed.
package p2p
