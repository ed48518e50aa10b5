// Package stats keeps the sums of a process's transfers where others can read
// them, also after the process has ended: in a file of shared memory, in
// $XDG_RUNTIME_DIR or /dev/shm, named by user and process.
//
// The counters that transfers add to are the file's memory itself, each thread's
// share in cache lines of its own. So there is nothing to export, no timer, no
// goroutine and no lock on the way, and a process that is killed leaves its last
// figures behind. Whoever reads adds the shares up.
//
// A process holds a lock on its file as long as it lives. The next process of
// the same user that finds a file without one notes the time, and one that finds
// such a note older than a minute removes the file.
package stats
