package main

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestLists: no edit of a list has been overtaken by the code. Most lists are long
// and run seldom.
func TestLists(t *testing.T) {
	t.Chdir("../../..")
	lists := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (path == "bin" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.Name() != "mutants.txt":
			return nil
		}
		lists++
		mutants, err := readList(path)
		for _, m := range mutants {
			if _, err := m.source(); err != nil {
				t.Errorf("%s: %s: %v", path, m, err)
			}
		}
		return err
	})
	if err != nil || lists == 0 {
		t.Fatalf("%d lists, %v", lists, err)
	}
}
