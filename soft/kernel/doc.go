// Package kernel emulates an operating system, as clients of kernel modules see it:
// device nodes by path, open files by number, and a file system with /proc and /sys.
//
// The packages below it are the emulated modules. Each registers device nodes with an
// [OS] and mounts files. They accept the requests of the real modules and give the
// same answers. They import none of the clients.
package kernel
