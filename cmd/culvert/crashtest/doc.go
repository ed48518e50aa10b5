// Package crashtest kills culvert before each system call that changes something,
// changes trees while they are copied, and lets a second user plant links, FIFOs,
// locks and directories at the names that culvert is about to use. Afterwards it
// compares what a user finds with a model.
//
// The tests use fixed seeds. -crash.random N adds N random ones (make soak).
package crashtest
