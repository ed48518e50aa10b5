// Package uring is an io_uring that reads files: one ring, used by one goroutine
// at a time. It queues reads, submits them in one system call and returns their
// completions, without allocating per read.
//
// It exists for many small reads that wait for a disk: they need one system call
// instead of one thread each. A single read is faster with pread, because the ring
// costs it an extra wake-up. Kernels, containers and seccomp profiles may refuse
// io_uring; then [New] returns [ErrUnavailable], and every user must do without.
//
// # Threads
//
// The kernel completes a ring's reads in the context of the thread that submitted
// them; when that thread ends, some complete as cancelled or with EFAULT. A caller
// must lock its goroutine to the thread (runtime.LockOSThread) from the first
// submission until the last completion is reaped.
package uring
