package tensor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// A publisher gives a written file and its manifest their names. They are two
// files, so a reader could find one old and the other new. Therefore the first
// step replaces the manifest by one of both files, and the last one by that of the
// new file alone.
type publisher struct {
	data  *atomicfile.File
	link  string // the path that was given; path, or a symbolic link to it
	path  string
	mode  fs.FileMode
	alone bool // no other process can save into this directory
	step  func(string)
}

// publish does each step after the one before is on storage.
func (p *publisher) publish(ctx context.Context, m *Manifest) error {
	st, err := p.data.Stat()
	if err != nil {
		return err
	}
	m.describe(st)
	if !p.alone {
		// Two at a time could leave one's file with the other's manifest.
		unlock, err := atomicfile.LockDir(ctx, filepath.Dir(p.path))
		if err != nil {
			return err
		}
		defer unlock()
	}
	both := *m
	if both.Previous, err = p.previous(); err != nil {
		return err
	}
	// The point of no return.
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := writeManifest(manifestBeside(p.path), &both, p.mode, p.step); err != nil {
		return err
	}
	if err := p.removeOther(); err != nil {
		return err
	}
	if err := p.data.Commit(); err != nil {
		if both.Previous == nil {
			err = errors.Join(err, removeFile(manifestBeside(p.path), p.step))
		}
		return err
	}
	if both.Previous == nil {
		return nil
	}
	return writeManifest(manifestBeside(p.path), m, p.mode, p.step)
}

// removeOther removes the manifest that a link may have of its own.
func (p *publisher) removeOther() error {
	if st, err := os.Lstat(p.link); err != nil || st.Mode().Type() != fs.ModeSymlink {
		return nil
	}
	ours, err := os.Lstat(manifestBeside(p.path))
	if err != nil {
		return err
	}
	// A link to no file is replaced itself, and a link can appear at any moment.
	if other, err := os.Lstat(manifestBeside(p.link)); err != nil || os.SameFile(ours, other) {
		return nil
	}
	return removeFile(manifestBeside(p.link), p.step)
}

// previous returns the manifest of the file that is to be replaced, nil if there is
// none. A file whose checksums are unknown, or wrong already, has none.
func (p *publisher) previous() (*Manifest, error) {
	st, err := os.Stat(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	old, err := readManifest(p.link)
	if err != nil {
		old = &Manifest{Version: manifestVersion, Chunks: []Sum{}, Tensors: []TensorSum{}}
	} else {
		c := *old.of(st)
		old = &c
	}
	// Its name is that of the link if its manifest was there.
	old.File, old.Size, old.Previous = filepath.Base(p.path), st.Size(), nil
	old.describe(st)
	if old.check(old.File) != nil {
		old.Chunk, old.Chunks, old.Tensors = 0, []Sum{}, []TensorSum{}
	}
	return old, nil
}

// writeManifest replaces a manifest.
func writeManifest(path string, m *Manifest, mode fs.FileMode, step func(string)) error {
	f, err := atomicfile.Create(path, atomicfile.Options{Mode: mode, Step: step})
	if err != nil {
		return err
	}
	defer f.Discard()
	step("write manifest")
	if err := m.write(f); err != nil {
		return err
	}
	step("sync manifest")
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Commit()
}

// removeFile removes a file that need not exist, so that a crash does not bring it
// back.
func removeFile(path string, step func(string)) error {
	step("remove")
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path), step)
}

func syncDir(dir string, step func(string)) error {
	step("sync directory")
	return atomicfile.SyncDir(dir)
}
