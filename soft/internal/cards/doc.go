// Package cards shares the memory of software GPUs between processes: the frames of
// all cards of a machine, and who uses which. Contexts, streams and addresses belong to
// a process, as on hardware.
//
// The memory is a file without a name (memfd) that lives as long as a process that uses
// it, and is as large as it has to be whatever the size of /dev/shm. Processes find it by
// a small file, whose lines name the processes that have the memory open: a newcomer
// opens /proc/PID/fd/N of one that lives. So nothing but that small file outlives the
// processes, and it means nothing without them.
//
// Memory is taken in units. Each unit has a bit for each process that uses it, and is
// free when it has none. The bits are the only truth, and each is changed by itself: a
// process that is killed at any point leaves bits that the others clear when they see
// that it is gone ([Cards.Reap]). Processes are told apart by number, start time and
// stack, so that neither a new process with an old number nor a program that was
// executed by an old one keeps the memory. No descriptor is needed for this, because
// programs close descriptors that are not theirs.
//
// A lock in the memory serializes the processes. One whose owner was killed is taken
// over.
package cards
