// Package stats keeps a process's transfer totals in a shared-memory file, readable
// after it exits. Transfers update counters sharded by thread, without timer or
// lock; readers sum the shards.
//
// The file is in $XDG_RUNTIME_DIR or /dev/shm, named by user and process. The
// counters are its mapped memory, so that a killed process leaves its last numbers.
//
// A process locks its file as long as it lives. The next process of the same user
// that finds an unlocked file notes the time in it; a file whose note is older than
// a minute is removed.
package stats
