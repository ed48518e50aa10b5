package transfer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFilter(t *testing.T) {
	f := mustFilter(t, []string{"*.safetensors", "config/*.json", "weights/"}, []string{"old", "/tmp/*", "*.part", "./dot", "*.{log,t{m,e}p}", "x{y}", "cache/"})
	for path, want := range map[string]bool{
		"a.safetensors": true, "x/b.safetensors": true, "config/a.json": true, "x/config/a.json": false, "a.json": false, "readme": false,
		"weights": false, "weights/a": true, "x/weights/y/z": true,
	} {
		if f.includes(path) != want {
			t.Errorf("includes(%s) = %v", path, !want)
		}
	}
	for path, want := range map[string]bool{
		"old": true, "x/old": true, "tmp/a": true, "x/tmp/a": false, "a.part": true, "older": false,
		"dot": true, "x/dot": true, "a.log": true, "a.tmp": true, "a.tep": true, "a.tp": false, "x{y}": true, "xy": false, "cache": false,
	} {
		if f.excludes(path, false) != want {
			t.Errorf("excludes(%s) = %v", path, !want)
		}
	}
	if !f.excludes("x/cache", true) || !f.excludesBelow("x/cache/a") || f.excludesBelow("x/a") {
		t.Error("a pattern with a slash at its end is not the directory")
	}
	for _, none := range []*Filter{nil, mustFilter(t, nil, nil)} {
		if !none.includes("a") || none.excludes("a", false) {
			t.Error("an empty filter leaves something out")
		}
	}
}

// Patterns mean what they mean to a shell, and ** what it means to rclone: a filter that is
// understood otherwise leaves files out, or copies what it must not.
func TestPatterns(t *testing.T) {
	for pattern, paths := range map[string]map[string]bool{
		"data/**":       {"data": false, "data/a": true, "data/x/y/a": true, "x/data/a": false},
		"/data/**":      {"data": false, "data/x/a": true, "x/data/a": false},
		"**/o":          {"o": true, "a/o": true, "a/b/o": true, "a/oo": false},
		"a/**/b":        {"a/b": true, "a/x/b": true, "a/x/y/b": true, "a/x": false, "x/a/b": false},
		"a/**/b/**/c":   {"a/b/c": true, "a/x/b/b/y/c": true, "a/b/x/b": false, "a/c/b": false},
		"a/**/*.{x,yz}": {"a/1.x": true, "a/b/1.yz": true, "a/b/1.y": false},
		"**":            {"a": true, "a/b": true},
		"/a":            {"a": true, "x/a": false},
		"*/a":           {"x/a": true, "x/y/a": false, "a": false},
		"[!a]*":         {"a": false, "ab": false, "b": true, "x/a": false, "x/b": true},
		"[^a]*":         {"a": false, "b": true},
		"[a!]":          {"a": true, "!": true, "b": false},
		`\[!a]`:         {"[!a]": true, "b": false},
		"[[!]":          {"[": true, "!": true, "a": false},
	} {
		f := mustFilter(t, []string{pattern}, nil)
		for path, want := range paths {
			if f.includes(path) != want {
				t.Errorf("%s: %s matches: %v", pattern, path, !want)
			}
		}
	}
	f := mustFilter(t, []string{"a/**/b/"}, nil)
	if !f.includes("a/x/b/c") || f.includes("a/x/b") || f.includes("a/c") {
		t.Error("a/**/b/ is not what is below each b")
	}
}

func TestInvalidPatterns(t *testing.T) {
	for _, text := range []string{"[a", "", "/", "./", "a{b,[}", "a**", "x/**b/c", "{**.a,b}", "a[/]b"} {
		if _, err := NewFilter(nil, []string{text}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("invalid pattern %q", text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := NewFilter([]string{strings.Repeat("{a,b}", 60)}, nil); err == nil || !strings.Contains(err.Error(), "more than 1000 alternatives") {
		t.Error(err)
	}
}

// A pattern that matched nothing in any plan is known at the end.
func TestUnmatchedPatterns(t *testing.T) {
	f := mustFilter(t, []string{"*.bin", "*.txt"}, []string{"old", "b/", "a"})
	f.includes("x/a.bin")
	f.excludes("a", false)
	f.excludes("b", false)
	list, none := f.Unmatched()
	if got := strings.Join(list, " "); got != "*.txt old b/" || none {
		t.Errorf("unmatched %s, none %v", got, none)
	}
	if _, none := mustFilter(t, []string{"*.txt"}, nil).Unmatched(); !none {
		t.Error("no file is included, and that is not known")
	}
}

func mustFilter(t *testing.T, include, exclude []string) *Filter {
	t.Helper()
	f, err := NewFilter(include, exclude)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A file is left alone only if size and time are those of the source.
func TestUpdate(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	at := time.Unix(1e9, 5)
	for _, f := range []struct {
		dir, name, text string
		time            time.Time
	}{
		{src, "same", "abc", at},
		{dst, "same", "xyz", at},
		{src, "newer", "abc", at.Add(time.Nanosecond)},
		{dst, "newer", "xyz", at},
		{src, "longer", "abcd", at},
		{dst, "longer", "xyz", at},
		{src, "new", "abc", at},
	} {
		path := filepath.Join(f.dir, f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, f.time, f.time); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := PlanTree(context.Background(), src, dst, PlanOptions{Update: true})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range tree.Files {
		names = append(names, f.Path)
	}
	if got := strings.Join(names, " "); got != "longer new newer" || tree.Unchanged != 1 {
		t.Errorf("copies %s, %d unchanged", got, tree.Unchanged)
	}
}
