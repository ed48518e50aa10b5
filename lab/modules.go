package lab

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// moduleTable is depmod's tables of one kernel.
type moduleTable struct {
	files   map[string]string   // path of each module, by name
	deps    map[string][]string // paths that a path needs
	builtin map[string]bool     // names that are built into the kernel
}

// moduleName is the file name without endings, with underscores.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func readModuleTable(dir string) (*moduleTable, error) {
	t := &moduleTable{files: map[string]string{}, deps: map[string][]string{}, builtin: map[string]bool{}}
	err := eachLine(filepath.Join(dir, "modules.dep"), func(line string) {
		file, deps, _ := strings.Cut(line, ":")
		t.files[moduleName(file)] = file
		t.deps[file] = strings.Fields(deps)
	})
	if err != nil {
		return nil, err
	}
	err = eachLine(filepath.Join(dir, "modules.builtin"), func(line string) { t.builtin[moduleName(line)] = true })
	return t, err
}

func eachLine(file string, f func(string)) error {
	r, err := os.Open(file)
	if err != nil {
		return err
	}
	defer r.Close()
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f(sc.Text())
	}
	return sc.Err()
}

// order lists the files to load for the named modules, each after its dependencies.
// modules.dep lists a module's whole chain, the deepest last.
func (t *moduleTable) order(names []string) ([]string, error) {
	var files []string
	add := func(f string) {
		if !slices.Contains(files, f) {
			files = append(files, f)
		}
	}
	for _, n := range names {
		n = moduleName(n)
		if t.builtin[n] {
			continue
		}
		f, ok := t.files[n]
		if !ok {
			return nil, fmt.Errorf("kernel has no module %s", n)
		}
		for _, d := range slices.Backward(t.deps[f]) {
			add(d)
		}
		add(f)
	}
	return files, nil
}
