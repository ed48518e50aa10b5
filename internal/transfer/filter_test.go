package transfer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFilter(t *testing.T) {
	f := Filter{Include: []string{"*.safetensors", "config/*.json"}, Exclude: []string{"old", "/tmp/*", "*.part"}}
	for path, want := range map[string]bool{
		"a.safetensors": true, "x/b.safetensors": true, "config/a.json": true, "x/config/a.json": false, "a.json": false, "readme": false,
	} {
		if f.includes(path) != want {
			t.Errorf("includes(%s) = %v", path, !want)
		}
	}
	for path, want := range map[string]bool{"old": true, "x/old": true, "tmp/a": true, "x/tmp/a": false, "a.part": true, "older": false} {
		if f.excludes(path) != want {
			t.Errorf("excludes(%s) = %v", path, !want)
		}
	}
	if err := (&Filter{Exclude: []string{"[a"}}).check(); err == nil || !strings.Contains(err.Error(), `invalid pattern "[a"`) {
		t.Error(err)
	}
	none := Filter{}
	if !none.includes("a") || none.excludes("a") {
		t.Error("an empty filter leaves something out")
	}
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
