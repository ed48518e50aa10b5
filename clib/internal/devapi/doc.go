// Package devapi is the device nodes of the software machine, and their files in /proc
// and /sys, for C programs: what libculvert-dev.so asks of the Go core. The C half
// (shim/dev_*.c) answers the C library's open, ioctl, mmap and so on for paths and
// descriptors of the software kernel, and passes all others on.
//
// A descriptor of the program is a real one, of an empty file in memory, so that poll,
// select, fork and limits work without help. A file of /proc or /sys has its text in it
// and needs nothing more from here.
//
// Methods return errors with an errno.
package devapi
