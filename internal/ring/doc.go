// Package ring moves bytes between files and GPU memory through pinned host
// memory: read into a slot, copy the slot to the GPU, use the slot again. On
// machines without a direct path this is the fastest way there is, provided
// that the memory is pinned once and kept, that reading and copying overlap,
// and that nobody waits for a hand-over that could be avoided.
//
// # How a request runs
//
// A [Ring.Run] of one small request runs in the caller: a slot is borrowed, one
// pread, one copy, back. Anything larger becomes an op, which is cut into pieces
// as they are needed. Pieces are worked on by whoever holds a lane: a stream
// and a few slots. The caller takes a lane when one is free, so that sixteen
// callers cost no hand-over at all, and helpers, which are goroutines on locked
// threads, take the others, so that one caller gets the whole machine. While
// one slot is being copied the lane reads into the next.
//
// The size of a piece follows from what is left of the op and how many lanes
// could take part: large pieces while there is plenty, because a copy costs
// some microseconds to launch whatever its size, smaller ones towards the end.
// Requests of a batch share slots. Small ones are gathered, go to the GPU in one
// copy, and are put in place there by a kernel.
//
// As many helpers are called in as fill the link at the pace at which they read.
// Few write into a file at a time, because file systems let in only one; large
// writes over pages that the cache has are stored into a mapping of them instead.
//
// # Warm and cold
//
// A range that the page cache holds is read through it; a cold one by O_DIRECT,
// where the caller gave a descriptor for that. Ends that are not aligned do not
// need a read of their own: the slot takes the aligned range around the piece,
// and the copy only its inner part. A cold read that fits into a slot goes as a
// whole or in two halves at once, whichever has been faster.
//
// # Locks
//
// Ring.mu guards ops, lanes that are free and the helpers; pool.mu the budget;
// smalls.mu the slots of small requests. No two are held at the same time, and
// none during I/O. A lane belongs to its holder alone.
package ring
