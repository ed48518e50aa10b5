package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	root := flag.String("root", "clib", "the clib directory")
	check := flag.Bool("check", false, "write nothing; fail when a file is stale")
	flag.Parse()
	files, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	if err := update(*root, files, *check); err != nil {
		log.Fatal(err)
	}
}

// update writes the files, or returns an error if check is set and one differs.
func update(root string, files map[string][]byte, check bool) error {
	for name, want := range files {
		path := filepath.Join(root, name)
		have, err := os.ReadFile(path)
		switch {
		case err == nil && bytes.Equal(have, want):
		case check:
			return fmt.Errorf("%s is stale: run go run ./clib/gen", path)
		default:
			if err := os.WriteFile(path, want, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// generate returns the files by their path under clib.
func generate() (map[string][]byte, error) {
	t, err := number(libraries)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"shim/entries.h": entriesHeader(t),
		"core/table.h":   coreHeader(t),
		"shim/errors.h":  errorsHeader(),
	}
	for _, l := range libraries {
		files["shim/"+l.Name+".c"] = shim(t, l)
		if !l.Private {
			files["shim/"+l.Name+".map"] = versionScript(l)
		}
		if files["internal/dispatch/entries_"+l.Name+".go"], err = dispatchCode(t, l); err != nil {
			return nil, err
		}
	}
	files["shim/watch.c"] = watchShim(t)
	for name, comment := range programKernels {
		if files["programs/"+name+"_ptx.h"], err = ptxHeader(name, comment); err != nil {
			return nil, err
		}
	}
	return files, nil
}
