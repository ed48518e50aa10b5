package fusetest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// The names differ in what they do to the page cache, and not in their bytes.
func TestNames(t *testing.T) {
	const size = 1<<20 + 777
	data := bytes.Repeat([]byte("0123456789"), size)[:size]
	backing := filepath.Join(t.TempDir(), "backing")
	if err := os.WriteFile(backing, data, 0o600); err != nil {
		t.Fatal(err)
	}
	fs := Mount(t, backing)
	for _, c := range []struct {
		name          string
		first, second int64 // bytes asked for by reads of two opens
	}{
		{Plain, size, size}, {Kept, size, 0}, {Uncached, size, size}, {NoDirect, size, size},
	} {
		for i, want := range []int64{c.first, c.second} {
			before := fs.Asked(t)
			got, err := os.ReadFile(fs.Path(c.name))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
			}
			if n := fs.Asked(t) - before; n != want {
				t.Errorf("%s, open %d: asked for %d bytes, want %d", c.name, i+1, n, want)
			}
		}
		f, err := os.OpenFile(fs.Path(c.name), os.O_RDWR|unix.O_DIRECT, 0)
		if (c.name == NoDirect) != errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: open with O_DIRECT: %v", c.name, err)
		}
		f.Close()
	}
	f, err := os.OpenFile(fs.Path(Plain), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("new"), 5); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(backing); err != nil || string(now[:10]) != "01234new89" {
		t.Errorf("the backing file has %q, %v", now[:10], err)
	}
	if _, err := os.Stat(fs.Path("other")); !os.IsNotExist(err) {
		t.Errorf("a name that there is not: %v", err)
	}
}
