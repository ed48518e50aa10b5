// Package ring moves data between files and GPU memory through pinned slots, which
// stay pinned; I/O overlaps copies. A single request up to 128 KiB runs in its
// caller. Others are split into chunks for the caller and workers, each with its own
// pipeline.
//
// # How a batch runs
//
// [Ring.Run] makes a batch of its requests, and the scheduler cuts it into chunks
// when they are needed. A pipeline (a stream and a few slots) processes one chunk
// after the other: read into a slot, copy the slot to the GPU, reuse the slot when
// the copy is done. The caller takes a pipeline if one is free, so that sixteen
// callers need no other thread. Workers, which are goroutines on locked threads,
// take the others, so that one caller gets the whole machine.
//
// The size of a chunk depends on what is left of the batch and how many pipelines
// could take part: large while there is plenty, because a copy costs some
// microseconds to launch whatever its size, and smaller towards the end. Small
// requests of a batch are coalesced: they share a slot and one copy, and a kernel on
// the GPU puts them in place.
//
// The scheduler uses as many workers as fill the link at the rate at which they read.
// Few write to a file at a time, because file systems admit only one. Large writes
// over cached pages are stored into a mapping of the file instead.
//
// While few bytes wait for the copy engine, chunks of a read whose memory has a BAR1
// mapping ([Request.Window]) are read straight into it: see windowReaders.
//
// # Warm and cold
//
// A range that the page cache has is read through it. How another one is read, with
// O_DIRECT or filling the cache, is the policy of package storage. What fills the
// cache is asked for ahead of the readers (fileIO.readAhead). Unaligned ends need no read
// of their own: the slot takes the aligned range around the chunk, and the copy only
// its inner part. A cold read that fits into a slot is read as a whole or in two
// concurrent halves, whichever has been faster.
//
// # Choices
//
// What depends on the machine is chosen by package tune from transfers that happen
// anyway, and logged at debug level: the number of workers, split or whole cold
// reads, preads or copies from a mapping of cached pages, stores or pwrites over them,
// completion flags or the driver's wait. [Config.Poll] takes the choice between polling
// and sleeping away.
//
// # Locks
//
// scheduler.mu guards batches, free pipelines and workers; smallSlots.mu the slots of
// small requests; pinnedPool.mu the budget. No two are held at the same time, and
// none during a slow call. A pipeline and a
// small slot belong to the goroutine that acquired them.
package ring
