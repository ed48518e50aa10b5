// Package uring is an io_uring for reading and writing files: one ring, used by
// one goroutine at a time, that queues operations, submits them in one system
// call and hands their completions back. It allocates nothing per operation.
//
// It exists because a queue of small reads that have to wait for a disk goes
// through one system call instead of one thread each. A single read is faster
// by pread: the ring costs it an extra wake-up. Kernels, containers and
// seccomp profiles may refuse io_uring altogether; [New] then answers
// [ErrUnavailable], and every user needs a way to do without.
//
// # Threads
//
// The kernel finishes the operations of a ring in the context of the thread
// that submitted them, and when that thread is gone some come back as
// cancelled or as EFAULT. A caller therefore keeps its goroutine locked to the
// thread (runtime.LockOSThread) from the first submission until the last
// completion is reaped. A ring made with [Config.Single] belongs to the thread
// that made it for good: from any other one the kernel answers EEXIST.
package uring
