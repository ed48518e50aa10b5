package transfer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func planTree(t *testing.T, src, dst string, o PlanOptions) *Tree {
	t.Helper()
	tree, err := PlanTree(context.Background(), src, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// --checksum compares contents: a file with another time is left alone, and one with
// the size and time of its source, but other contents, is copied.
func TestChecksum(t *testing.T) {
	drv, src := newDriver(t), forest(t)
	dst := filepath.Join(t.TempDir(), "dst")
	plan := func(o PlanOptions) *Tree { t.Helper(); return planTree(t, src, dst, o) }
	if _, err := plan(PlanOptions{}).Copy(context.Background(), drv, TreeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := plan(PlanOptions{Checksum: true}); len(got.Files) != 0 || got.Unchanged != 9 {
		t.Errorf("nothing has changed:\n%v", got)
	}
	touch(t, filepath.Join(dst, "z.bin"), time.Unix(1, 0))
	change(t, filepath.Join(dst, "sub/deep/e.bin"))
	if got := plan(PlanOptions{Update: true}); len(got.Files) != 1 || got.Files[0].Path != "z.bin" {
		t.Errorf("--update compares size and time:\n%v", got)
	}
	for _, o := range []PlanOptions{{Checksum: true}, {Checksum: true, Update: true}} {
		if got := plan(o); len(got.Files) != 1 || got.Files[0].Path != "sub/deep/e.bin" || got.Unchanged != 8 {
			t.Errorf("%+v compares contents:\n%v", o, got)
		}
	}
	if got := plan(PlanOptions{Checksum: true, Preserve: true}); len(got.Files) != 2 {
		t.Errorf("--preserve needs the same attributes, too:\n%v", got)
	}
	tree := plan(PlanOptions{Checksum: true})
	if res, err := tree.Copy(context.Background(), drv, TreeOptions{}); err != nil || res.Files != 1 || res.Same != 8 {
		t.Errorf("%+v, %v", res, err)
	}
	want, _ := os.ReadFile(filepath.Join(src, "sub/deep/e.bin"))
	if got, err := os.ReadFile(filepath.Join(dst, "sub/deep/e.bin")); err != nil || string(got) != string(want) {
		t.Errorf("the file that differs was not copied: %v", err)
	}
}

// With --preserve, --update brings another mode, too: size and time are the same.
func TestUpdateMode(t *testing.T) {
	drv, src, dst := newDriver(t), t.TempDir(), filepath.Join(t.TempDir(), "dst")
	a, b := filepath.Join(src, "a"), filepath.Join(dst, "a")
	if err := os.WriteFile(a, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := PlanOptions{Update: true, Preserve: true}
	for i, mode := range []os.FileMode{0o644, 0o600, 0o600} {
		if err := os.Chmod(a, mode); err != nil {
			t.Fatal(err)
		}
		same, err := o.Same(context.Background(), a, b)
		tree, perr := PlanTree(context.Background(), src, dst, o)
		if err = errors.Join(err, perr); err != nil {
			t.Fatal(err)
		}
		if want := i == 2; same != want || (len(tree.Files) == 0) != want {
			t.Errorf("mode %v is left out: %v, of a tree %d are copied", mode, same, len(tree.Files))
		}
		if _, err := tree.Copy(context.Background(), drv, TreeOptions{Options: Options{Preserve: true}}); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(b); err != nil || st.Mode() != mode {
			t.Errorf("%v, %v", st, err)
		}
	}
}

// A comparison reports how much of it is done, up to all of it, whatever differs.
func TestComparedBytes(t *testing.T) {
	drv, src := newDriver(t), t.TempDir()
	dst := filepath.Join(t.TempDir(), "dst")
	const size = 3<<20 + 5
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(src, name), bytes.Repeat([]byte("x"), size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(o PlanOptions) *Tree { t.Helper(); return planTree(t, src, dst, o) }
	if _, err := plan(PlanOptions{}).Copy(context.Background(), drv, TreeOptions{}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var most int64
	o := PlanOptions{Checksum: true, Compared: func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if most = max(most, done); total != 2*size || done > total {
			t.Errorf("%d of %d bytes", done, total)
		}
	}}
	if plan(o); most != 2*size {
		t.Errorf("%d bytes were compared", most)
	}
	most = 0
	change(t, filepath.Join(dst, "b"))
	if plan(o); most != size+3<<20 && most != 2*size { // the unit that differs is not reported, and a may be compared after it
		t.Errorf("%d bytes were compared before a difference", most)
	}
	o.Compared = func(done, total int64) { most = done }
	if same, err := o.Same(context.Background(), filepath.Join(src, "a"), filepath.Join(dst, "a")); err != nil || !same || most != size {
		t.Errorf("%v, %v: %d bytes of a file", same, err, most)
	}
}

// A file with several names is as unchanged as any other, unless the names are to be kept
// together: then the copy compares them.
func TestUnchangedHardLink(t *testing.T) {
	drv, src, dst := newDriver(t), t.TempDir(), filepath.Join(t.TempDir(), "dst")
	if err := os.WriteFile(filepath.Join(src, "a"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(src, "a"), filepath.Join(src, "b")); err != nil {
		t.Fatal(err)
	}
	for i, o := range []PlanOptions{{}, {Update: true}, {Update: true, Preserve: true}} {
		tree, err := PlanTree(context.Background(), src, dst, o)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tree.Copy(context.Background(), drv, TreeOptions{Options: Options{Preserve: o.Preserve}})
		if err != nil || res.Same != []int{0, 2, 0}[i] || res.Files+res.Hard != []int{2, 0, 2}[i] {
			t.Errorf("%+v: %+v, %v", o, res, err)
		}
	}
}

func touch(t *testing.T, path string, when time.Time) {
	t.Helper()
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

// change changes the last byte of a file, and nothing that a directory shows.
func change(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	touch(t, path, st.ModTime())
}

// Holes are compared, too: data in one file where the other has none is a difference.
func TestSamePrefix(t *testing.T) {
	dir := t.TempDir()
	const size = 8 << 20
	file := func(name string, at ...int64) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		for _, off := range at {
			if _, err := f.WriteAt([]byte{1}, off); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		return f
	}
	a := file("a", 0, 5<<20+7)
	for _, c := range []struct {
		name string
		b    *os.File
		want int64
	}{
		{"same", file("same", 0, 5<<20+7), size},
		{"more", file("more", 0, 3<<20+1, 5<<20+7), 3 << 20},
		{"less", file("less", 0), 5 << 20},
		{"end", file("end", 0, 5<<20+7, size-1), 7 << 20},
		{"begin", file("begin"), 0},
	} {
		for _, pair := range [][2]*os.File{{a, c.b}, {c.b, a}} {
			if got, err := samePrefix(context.Background(), pair[0], pair[1], size, func(int64) {}); got != c.want || err != nil {
				t.Errorf("%s: the first %d bytes are the same, %v, want %d", c.name, got, err, c.want)
			}
		}
	}
	short := file("short", 0)
	if err := short.Truncate(2<<20 + 5); err != nil {
		t.Fatal(err)
	}
	if got, err := samePrefix(context.Background(), a, short, size, func(int64) {}); got > 5<<20 || err != nil {
		t.Errorf("a shorter file: %d, %v", got, err)
	}
}
