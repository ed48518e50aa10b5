package transfer

import (
	"fmt"
	"path"
	"strings"
)

// A Filter chooses entries of a directory by patterns with *, ? and [a-z]. A pattern
// without a slash is compared with names, one with a slash with the path below the
// directory.
type Filter struct {
	Include []string // files must match one of them, if there are any
	Exclude []string // files and directories must match none of them
}

// check reports an invalid pattern.
func (f *Filter) check() error {
	for _, list := range [][]string{f.Include, f.Exclude} {
		for _, pattern := range list {
			if _, err := path.Match(pattern, ""); err != nil {
				return fmt.Errorf("invalid pattern %q (want *, ? and [a-z])", pattern)
			}
		}
	}
	return nil
}

// excludes reports whether a file or directory, and so all below it, is left out.
func (f *Filter) excludes(rel string) bool { return matches(f.Exclude, rel) }

// excludesBelow reports whether a file or one of the directories above it is left out.
func (f *Filter) excludesBelow(rel string) bool {
	for ; rel != "."; rel = path.Dir(rel) {
		if f.excludes(rel) {
			return true
		}
	}
	return false
}

// includes reports whether a file is wanted.
func (f *Filter) includes(rel string) bool { return len(f.Include) == 0 || matches(f.Include, rel) }

func matches(patterns []string, rel string) bool {
	for _, pattern := range patterns {
		name := rel
		if !strings.Contains(pattern, "/") {
			name = path.Base(rel)
		}
		if ok, _ := path.Match(strings.TrimPrefix(pattern, "/"), name); ok {
			return true
		}
	}
	return false
}
