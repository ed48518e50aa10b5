package dev

import "io/fs"

// An OS opens device nodes and shows the files that describe them. It is safe
// for concurrent use.
type OS interface {
	// Open opens a node for reading and writing, by absolute path. The error
	// is an *fs.PathError that holds the errno.
	Open(path string) (Node, error)
	// FS is the root of the file system: "proc/driver/nvidia/version", without
	// a leading slash. It may also be an fs.ReadLinkFS.
	FS() fs.FS
}

// Simulated reports whether an operating system is a model, whose modules can harm
// nobody, and not the one that this process runs on.
func Simulated(o OS) bool {
	s, ok := o.(interface{ Simulated() bool })
	return ok && s.Simulated()
}

// WSL reports whether this is Linux under Windows, which keeps the GPU to itself:
// there are no kernel modules and no nodes of it, and none can be loaded.
func WSL(o OS) bool {
	_, err := fs.Stat(o.FS(), "dev/dxg")
	return err == nil && !Simulated(o)
}
