package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// check compares the files and links below a tree with the list of what a package of
// an architecture contains. Each file must match a pattern, and each pattern a file.
func check(list, arch, tree string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	patterns, err := parseList(string(text), arch)
	if err != nil {
		return fmt.Errorf("check: %s: %w", list, err)
	}
	files, err := filesBelow(tree)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if err := compare(patterns, files); err != nil {
		return fmt.Errorf("check: %s differs from what %s lists for %s: change the list or the recipe install:\n%w", tree, list, arch, err)
	}
	return nil
}

// parseList reads lines of a pattern and an architecture, which may be "all".
func parseList(text, arch string) (patterns []string, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d: %q is not a pattern and an architecture", n, strings.TrimSpace(line))
		}
		if _, err := path.Match(fields[0], ""); err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n, fields[0], err)
		}
		if fields[1] == "all" || fields[1] == arch {
			patterns = append(patterns, fields[0])
		}
	}
	if len(patterns) == 0 {
		return nil, fmt.Errorf("nothing for architecture %s", arch)
	}
	return patterns, nil
}

// filesBelow returns the paths of all that is not a directory.
func filesBelow(tree string) (files []string, err error) {
	err = filepath.WalkDir(tree, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err = filepath.Rel(tree, name)
		files = append(files, filepath.ToSlash(name))
		return err
	})
	return files, err
}

func compare(patterns, files []string) error {
	var problems []error
	used := map[string]bool{}
	for _, file := range files {
		listed := false
		for _, pattern := range patterns {
			if ok, _ := path.Match(pattern, file); ok {
				listed, used[pattern] = true, true
			}
		}
		if !listed {
			problems = append(problems, fmt.Errorf("%s is not listed", file))
		}
	}
	for _, pattern := range patterns {
		if !used[pattern] {
			problems = append(problems, fmt.Errorf("no file matches %s", pattern))
		}
	}
	return errors.Join(problems...)
}
