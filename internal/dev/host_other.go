//go:build !linux

package dev

import (
	"errors"
	"io/fs"
	"os"
)

// Host returns the operating system of this computer. Device nodes can be opened only
// on Linux.
func Host() OS { return host{} }

type host struct{}

func (host) FS() fs.FS { return os.DirFS("/") }

func (host) Open(path string) (Node, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: errors.ErrUnsupported}
}

// MapFile maps part of a file, on Linux only.
func MapFile(f *os.File, _ int64, _, _ int) (Mapping, error) {
	return nil, &fs.PathError{Op: "mmap", Path: f.Name(), Err: errors.ErrUnsupported}
}
