// Package kernel is the operating system of the software machine, as far as a
// client of kernel modules sees one: a table of device nodes by path, a table
// of open files by number, and a file system with /proc and /sys.
//
// The modules themselves are the packages below this one. Each registers its
// nodes with an [OS] and mounts the files that it shows. They are the twins of
// real modules: they take the same bytes and give the same answers, and import
// none of the clients that talk to them.
package kernel
