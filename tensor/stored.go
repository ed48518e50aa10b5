package tensor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/object"
)

// A stored is an open file of a model: a file of this host or an object.
type stored interface {
	io.ReaderAt
	Name() string
	Stat() (fs.FileInfo, error)
	Close() error
}

func openStored(path string) (stored, error) {
	if object.IsURL(path) {
		return object.Open(object.Context(), path)
	}
	return atomicfile.OpenRegular(path)
}

func statStored(path string) (fs.FileInfo, error) {
	if !object.IsURL(path) {
		return os.Stat(path)
	}
	return statWith(object.Context(), path)
}

// statWith is statStored of a URL.
func statWith(ctx context.Context, url string) (fs.FileInfo, error) {
	info, err := object.Stat(ctx, url)
	return info.FileInfo(), err
}

// etag is what a store says of the contents; nil for a file of this host.
func etag(st fs.FileInfo) any {
	tag, ok := st.Sys().(string)
	if !ok {
		return nil
	}
	return tag
}

func isStoredDir(path string) (bool, error) {
	if object.IsURL(path) {
		return object.IsDir(object.Context(), path)
	}
	st, err := os.Stat(path)
	return err == nil && st.IsDir(), err
}

// hubNames are what model hubs call a model, sharded or not.
var hubNames = []string{"model" + fileSuffix + indexSuffix, "model" + fileSuffix}

// listStored returns the names in a directory; those of directories end with a slash. A
// web server cannot list its files: of the names that model hubs use, the first that is
// there counts.
func listStored(dir string) (names []string, err error) {
	if !object.IsURL(dir) {
		list, err := os.ReadDir(dir)
		for _, e := range list {
			name := e.Name()
			if e.IsDir() {
				name += "/"
			}
			names = append(names, name)
		}
		return names, err
	}
	list, err := object.List(object.Context(), dir)
	if !errors.Is(err, errors.ErrUnsupported) {
		for _, info := range list {
			names = append(names, info.Name)
		}
		return names, err
	}
	for _, name := range hubNames {
		_, err := object.Stat(object.Context(), object.Join(dir, name))
		if err == nil {
			return []string{name}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, nil
}

func joinStored(dir, name string) string {
	if object.IsURL(dir) {
		return object.Join(dir, name)
	}
	return filepath.Join(dir, name)
}

func dirStored(path string) string {
	if object.IsURL(path) {
		return object.Dir(path)
	}
	return filepath.Dir(path)
}

// storedName is the last part of a path or a URL.
func storedName(path string) string {
	if object.IsURL(path) {
		return object.Base(path)
	}
	return filepath.Base(path)
}
