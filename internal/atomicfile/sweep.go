package atomicfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sweep removes temporary files of killed processes from a directory. It leaves
// those that are being written, and those that the process may not remove.
func Sweep(dir string) {
	if d, err := OpenDir(dir); err == nil {
		d.Sweep()
		d.Close()
	}
}

// Sweep does the same in an open directory.
func (d *Dir) Sweep() {
	list, _ := d.Names(".")
	for _, name := range list {
		if Temporary(name) {
			d.removeLeftover(name)
		}
	}
}

func (d *Dir) removeLeftover(name string) {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, ErrSymlink) {
		_ = d.Remove(name) // has no lock: if its writer lives, Symlink tries again
	}
	if err != nil {
		return
	}
	defer f.Close()
	// Without its name it is removed already, and the name may be another's.
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && d.named(f, name) {
		_ = d.RemoveAll(name)
	}
}
