package atomicfile

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// Symlink makes path a symbolic link to target, which has the name temp, beside it,
// at first. A file of that name is a leftover. If temp is empty, the name is unique.
// step is called as Options.Step is.
func Symlink(target, path, temp string, step func(name string)) error {
	dir, err := OpenDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if temp != "" {
		temp = filepath.Base(temp)
	}
	return SymlinkIn(dir, target, filepath.Base(path), temp, step)
}

// SymlinkIn does the same in an open directory.
func SymlinkIn(dir *Dir, target, name, temp string, step func(name string)) error {
	if temp != "" {
		step("remove")
		if err := dir.Remove(temp); err != nil {
			return err
		}
		return symlink(dir, target, name, temp, step)
	}
	for range maxTries {
		err := symlink(dir, target, name, tempName(name), step)
		if !isAny(err, fs.ErrNotExist, fs.ErrExist) {
			return err
		}
		// Another process took the link for a leftover, or the directory is gone.
		if _, gone := dir.Names("."); gone != nil {
			return err
		}
	}
	return &fs.PathError{Op: "symlink", Path: dir.Path(name), Err: errBusy}
}

func symlink(dir *Dir, target, name, temp string, step func(name string)) error {
	step("link")
	if err := dir.Symlink(target, temp); err != nil {
		return err
	}
	step("rename")
	if err := dir.Rename(temp, name); err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	return nil
}
