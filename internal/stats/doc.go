// Package stats keeps a process's transfer totals in shared memory, readable after it
// exits. Transfers update counters sharded by thread, without timer or lock; readers
// sum the shards.
//
// The memory is a System V segment. Its counters are the ones that transfers update,
// so that a killed process leaves its last numbers. A file would do that, too, but
// a process that may write to a mapped file can truncate it, and the next transfer
// would end its process with SIGBUS. A System V segment cannot be truncated; a removed one
// stays until its process ends. A sealed memfd cannot be truncated either, but ends
// with its process. The kernel records the user and the process that made a segment,
// so none can be made up for another process.
//
// The next process of the same user removes segments of processes that ended more
// than a minute ago, and all but the latest 256.
package stats
