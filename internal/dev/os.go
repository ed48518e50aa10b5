package dev

import "io/fs"

// An OS opens device nodes and has the files that describe them. It is safe for
// concurrent use.
type OS interface {
	// Open opens a device node for reading and writing, by absolute path. The error
	// is an *fs.PathError that wraps the errno.
	Open(path string) (Node, error)
	// FS returns the root of the file system: "proc/driver/nvidia/version", without a
	// leading slash. It may also be an fs.ReadLinkFS.
	FS() fs.FS
}

// Simulated reports whether an operating system is emulated, so that its modules can
// do no harm.
func Simulated(o OS) bool {
	s, ok := o.(interface{ Simulated() bool })
	return ok && s.Simulated()
}

// Below returns the type of the file system and the number of the block device on
// which an emulated operating system has all files. It is false if o has none: files
// are where they really are.
func Below(o OS) (fileSystem, number string, ok bool) {
	if s, has := o.(interface{ Below() (string, string) }); has {
		fileSystem, number = s.Below()
	}
	return fileSystem, number, fileSystem != ""
}

// WSL reports whether this is Linux under Windows. It has no kernel modules and no
// device nodes of the GPU, and none can be loaded.
func WSL(o OS) bool {
	_, err := fs.Stat(o.FS(), "dev/dxg")
	return err == nil && !Simulated(o)
}
