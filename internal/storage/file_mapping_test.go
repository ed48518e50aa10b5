package storage

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMapped reads files from their mappings, which end with the file.
func TestMapped(t *testing.T) {
	n := 8 * pageSize
	data := bytes.Repeat([]byte("0123456789abcde"), int(n/15)+1)[:n]
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		file, err := os.CreateTemp(dir, "culvert")
		if err != nil {
			t.Logf("%s: %v", dir, err)
			continue
		}
		defer file.Close()
		if err := os.Remove(file.Name()); err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil { // allocates the blocks
			t.Fatal(err)
		}
		f, err := Adopt(int(file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if !mapsCheaply[f.Facts.FS] {
			if _, ok := f.Reads().Mapped(0, n); ok {
				t.Errorf("%s is mapped", f.Facts.FS)
			}
			f.Close()
			continue
		}
		for _, q := range []struct{ off, n int64 }{{0, n}, {pageSize + 7, 3 * pageSize}, {n - 5, 5}} {
			r, ok := f.Reads().Mapped(q.off, q.n)
			if !ok || !bytes.Equal(r.Bytes(), data[q.off:q.off+q.n]) {
				t.Fatalf("%s: %d bytes at %d: mapped %v", dir, q.n, q.off, ok)
			}
			if err := r.Drop(); err != nil || !bytes.Equal(r.Bytes(), data[q.off:q.off+q.n]) {
				t.Errorf("%s: after forgetting %d bytes at %d: %v", dir, q.n, q.off, err)
			}
		}
		if _, ok := f.Reads().Mapped(n-5, 6); ok {
			t.Error("beyond the end")
		}
		if err := file.Truncate(n + 64*pageSize); err != nil {
			t.Fatal(err)
		}
		if _, ok := f.Reads().Mapped(0, n); ok {
			t.Errorf("%s: a file with a hole is mapped", dir)
		}
		if !inMaps(t, f) {
			t.Errorf("%s: the file is not mapped", dir)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if inMaps(t, f) {
			t.Errorf("%s: the file is still mapped after it was closed", dir)
		}
	}
	if _, ok := new(Stream).Mapped(0, 1); ok {
		t.Error("a stream without a file is mapped")
	}
}

// inMaps reports whether a file that has no name any more is mapped.
func inMaps(t *testing.T, f *File) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(maps), f.Name)
}
