package transfer

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// A replacement is a new file that takes the place of another when it is committed. Its
// source has no mode: a new name gets 0666 without what the umask takes, and a file that
// is replaced keeps its mode.
type replacement struct {
	*atomicfile.File
	dir   *atomicfile.Dir
	attrs attributes
}

func replace(dst string) (*replacement, error) {
	dir, err := openAbove("create", dst)
	if err != nil {
		return nil, err
	}
	r := &replacement{dir: dir, attrs: attributes{source: &unix.Stat_t{Mode: 0o666}, opts: &Options{}}}
	if err := r.create(filepath.Base(dst)); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *replacement) create(name string) (err error) {
	r.dir.Sweep()
	if r.attrs.old, err = replaceable(r.dir, name, &unix.Stat_t{}); err != nil {
		return err
	}
	r.File, err = atomicfile.CreateIn(r.dir, name, atomicfile.Options{Mode: r.attrs.created(), Unnamed: true})
	if err != nil {
		return err
	}
	return r.attrs.begin(r.dir, name, r.File.File)
}

// sync gives the file its mode and puts all of it on stable storage.
func (r *replacement) sync() error {
	return errors.Join(r.attrs.finish(nil, r.File.File), r.Sync())
}

// close removes the new file unless it was committed.
func (r *replacement) close() error {
	if r.File == nil {
		return r.dir.Close()
	}
	return errors.Join(r.Discard(), r.dir.Close())
}
