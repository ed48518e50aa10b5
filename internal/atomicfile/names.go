package atomicfile

import (
	"crypto/rand"
	"errors"
	"path/filepath"
	"strings"
)

// Suffix ends the names of temporary files that [Sweep] removes.
const Suffix = ".culvert-tmp"

// Temporary reports whether a name is one of a temporary file. Nothing else can have
// it for long: Sweep removes it.
func Temporary(name string) bool {
	return strings.HasPrefix(name, tempPrefix("")) && strings.HasSuffix(name, Suffix)
}

// ErrTemporary means that a file is to have the name of a temporary file.
var ErrTemporary = errors.New("temporary files of culvert have such names, and later runs remove them (fix: choose another name)")

// TempName returns a unique path beside target that [Sweep] recognises.
func TempName(target string) string {
	return filepath.Join(filepath.Dir(target), tempName(filepath.Base(target)))
}

func tempName(name string) string { return tempPrefix(name) + "." + rand.Text()[:8] + Suffix }

// maxPrefix leaves room for the rest of a temporary file's name in 255 bytes.
const maxPrefix = 200

// Target returns the path that a temporary or unfinished file will have, or the path
// itself: what people know a file by that is being written.
func Target(path string) string {
	dir, name := filepath.Split(path)
	switch {
	case IsPart(name):
		name = strings.TrimSuffix(name, PartSuffix)
	case Temporary(name):
		name = strings.TrimSuffix(name, Suffix)
		name = name[:max(strings.LastIndexByte(name, '.'), 0)]
	default:
		return path
	}
	if len(name) < 2 {
		return path // of no target
	}
	return dir + name[1:]
}

// tempPrefix begins the names of the temporary files of a target.
func tempPrefix(name string) string {
	return "." + name[:min(len(name), maxPrefix)]
}
