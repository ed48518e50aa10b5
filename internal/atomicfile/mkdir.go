package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MkdirAll creates a directory and those above it that are missing, and forces
// their names to storage.
func MkdirAll(dir string, mode fs.FileMode) error {
	dir = filepath.Clean(dir)
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	if err := MkdirAll(above, mode); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(above)
}

// SyncDir forces the names in a directory to storage. File systems that cannot do
// so have nothing to force.
func SyncDir(dir string) error {
	d, err := OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
