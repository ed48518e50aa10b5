package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// PartSuffix ends the names of unfinished files that a later process continues. Sweep
// leaves them alone.
const PartSuffix = ".culvert-part"

// IsPart reports whether a name is one of an unfinished file.
func IsPart(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, PartSuffix)
}

// PartName returns the name of the unfinished file of a target.
func PartName(name string) string { return tempPrefix(name) + PartSuffix }

// OpenPart opens the unfinished file of a target in an open directory, or creates an
// empty one with mode 0600. It returns nil if there is none that is this process's
// alone: another process writes it, another user put something there, or the file
// system has no locks. What it contains is not to be trusted.
//
// Commit makes it the target, Discard removes it, and Leave keeps it for later.
func OpenPart(dir *Dir, name string, o Options) (*File, error) {
	if o.Step == nil {
		o.Step = func(string) {}
	}
	f := &File{dir: dir, name: name, opts: o, temp: PartName(name)}
	err := f.openPart()
	if err == nil && f.File == nil {
		return nil, nil
	}
	if err != nil {
		return nil, targetError(dir.Path(name), err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil || !dir.named(f.File, f.temp) {
		return nil, f.Close()
	}
	return f, nil
}

// openPart opens the file; f.File stays nil if another is in its place.
func (f *File) openPart() error {
	st, err := f.dir.Stat(f.temp)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f.createPart()
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid():
		return nil
	case !private(st):
		// Others have another name for it, or may have it open for writing; or it has
		// the mode of a source that its owner may only read.
		f.opts.Step("remove")
		if err := f.dir.Remove(f.temp); err != nil {
			return err
		}
		return f.createPart()
	}
	file, err := f.dir.OpenFile(f.temp, os.O_RDWR, 0)
	if err != nil {
		return nil // replaced since
	}
	if err := unix.Fstat(int(file.Fd()), st); err != nil || !private(st) || int(st.Uid) != os.Geteuid() {
		return file.Close()
	}
	f.File = file
	return unix.SetNonblock(int(file.Fd()), false)
}

func (f *File) createPart() (err error) {
	f.opts.Step("create")
	f.File, err = f.dir.OpenFile(f.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		f.File, err = nil, nil // another process was first
	}
	return err
}

// private reports a regular file that only its owner can write.
func private(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1 && st.Mode&0o622 == 0o600
}

// Leave closes an unfinished file, and keeps it for OpenPart.
func (f *File) Leave() error { return f.Close() }
