//go:build !linux

package dev

import (
	"errors"
	"io/fs"
	"os"
)

// Host is the operating system that this process runs on. Its nodes can be
// opened on Linux alone.
func Host() OS { return host{} }

type host struct{}

func (host) FS() fs.FS { return os.DirFS("/") }

func (host) Open(path string) (Node, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: errors.ErrUnsupported}
}

// MapFile maps part of a file, on Linux alone.
func MapFile(f *os.File, _ int64, _, _ int) (Mapping, error) {
	return nil, &fs.PathError{Op: "mmap", Path: f.Name(), Err: errors.ErrUnsupported}
}
