// Package elfdeps finds the shared libraries and the program interpreter that
// a dynamically linked program needs, by reading the files alone. ldd would
// run the program's own loader to learn the same.
package elfdeps

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SystemDirs are the directories that loaders search by themselves, in their
// order on the common distributions.
var SystemDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// Walk returns every file that the programs and libraries in paths need beside
// themselves, directly or not, each once and in the order of discovery. A
// statically linked program needs none. Libraries are looked for as the loader
// does: RPATH or RUNPATH of the file that needs them, then dirs.
func Walk(dirs []string, paths ...string) ([]string, error) {
	w := walker{dirs: dirs, seen: map[string]bool{}}
	for _, p := range paths {
		w.seen[p] = true
	}
	for _, p := range paths {
		if err := w.visit(p); err != nil {
			return nil, err
		}
	}
	return w.found, nil
}

type walker struct {
	dirs  []string
	seen  map[string]bool
	found []string
}

func (w *walker) visit(path string) error {
	o, err := open(path)
	if err != nil {
		return err
	}
	if o.interp != "" {
		w.add(o.interp)
	}
	for _, name := range o.needed {
		lib, err := w.lookup(o, name)
		if err != nil {
			return err
		}
		if !w.add(lib) {
			continue
		}
		if err := w.visit(lib); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) add(path string) bool {
	if w.seen[path] {
		return false
	}
	w.seen[path] = true
	w.found = append(w.found, path)
	return true
}

func (w *walker) lookup(o *object, name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	dirs := slices.Concat(o.runpath, w.dirs)
	for _, d := range dirs {
		p := filepath.Join(d, name)
		// A directory may hold the same name for another architecture.
		if c, err := open(p); err == nil && c.machine == o.machine {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s needs %s: not in %s", o.path, name, strings.Join(dirs, ", "))
}

// An object is what matters here of an ELF file.
type object struct {
	path    string
	machine elf.Machine
	interp  string
	needed  []string
	runpath []string
}

func open(path string) (*object, error) {
	f, err := elf.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	o := &object{path: path, machine: f.Machine}
	if o.interp, err = interp(f); err != nil {
		return nil, fmt.Errorf("%s: interpreter: %w", path, err)
	}
	if o.needed, err = f.DynString(elf.DT_NEEDED); err != nil {
		return nil, fmt.Errorf("%s: needed libraries: %w", path, err)
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		ss, err := f.DynString(tag)
		if err != nil {
			return nil, fmt.Errorf("%s: library path: %w", path, err)
		}
		for _, s := range ss {
			o.runpath = append(o.runpath, expand(s, path)...)
		}
	}
	return o, nil
}

// maxInterp bounds what a damaged header can make us read; the kernel's own
// bound is PATH_MAX.
const maxInterp = 4096

func interp(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(p.Open(), maxInterp))
		return strings.TrimRight(string(b), "\x00"), err
	}
	return "", nil
}

func expand(runpath, path string) []string {
	origin := filepath.Dir(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		origin = filepath.Dir(real)
	}
	var dirs []string
	for d := range strings.SplitSeq(runpath, ":") {
		if d != "" {
			dirs = append(dirs, strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(d))
		}
	}
	return dirs
}
