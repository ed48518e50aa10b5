package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	failed := errors.New("failed")
	for _, text := range []string{"one", "two"} {
		err := Write(path, 0o640, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(path, 0o640, func(io.Writer) error { return failed }); err != failed {
			t.Errorf("a failed write: %v", err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if diff := cmp.Diff([]string{"f"}, names(t, dir)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// However the temporary file is kept, the target is the old file or the new one.
func TestCommitAndDiscard(t *testing.T) {
	t.Run("linked by descriptor", testCommitAndDiscard)
	defer needsProc.Store(needsProc.Swap(true))
	t.Run("linked by its path in proc", testCommitAndDiscard)
}

func testCommitAndDiscard(t *testing.T) {
	for name, o := range map[string]Options{
		"unique":  {Mode: 0o600},
		"unnamed": {Mode: 0o600, Unnamed: true},
		"given":   {Mode: 0o600, Temp: ".mine"},
		"both":    {Mode: 0o600, Temp: ".mine", Unnamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			for _, commit := range []string{"first", "second"} {
				for _, text := range []string{"discarded", commit} {
					f, err := Create(path, o)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := f.WriteString(text); err != nil {
						t.Fatal(err)
					}
					if text == commit {
						if err := f.Commit(); err != nil {
							t.Fatal(err)
						}
					}
					if err := f.Discard(); err != nil {
						t.Error(err)
					}
				}
				if got, err := os.ReadFile(path); err != nil || string(got) != commit {
					t.Errorf("%q, %v", got, err)
				}
				if diff := cmp.Diff([]string{"f"}, names(t, dir)); diff != "" {
					t.Errorf("names (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// An error names the target, not the temporary file.
func TestCreateNamesTheTarget(t *testing.T) {
	target := filepath.Join(t.TempDir(), "none", "model")
	for _, o := range []Options{{}, {Dir: true}, {Unnamed: true}} {
		_, err := Create(target, o)
		if want := "create " + target + ": no such file or directory"; err == nil || err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "f")
	dead, other := ".f.AAAAAAAA"+Suffix, "x"+Suffix
	for _, name := range []string{dead, other} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Opening these must neither wait nor lead elsewhere.
	fifo, link := ".f.FIFO"+Suffix, ".f.LINK"+Suffix
	if err := errors.Join(unix.Mkfifo(filepath.Join(dir, fifo), 0o600), os.Symlink(other, filepath.Join(dir, link))); err != nil {
		t.Fatal(err)
	}
	alive, err := Create(target, Options{Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Discard()
	Sweep(dir)
	for _, name := range []string{dead, fifo, link} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{other, filepath.Base(alive.Name())} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestSymlink(t *testing.T) {
	dir := t.TempDir()
	path, temp := filepath.Join(dir, "latest"), filepath.Join(dir, ".latest")
	if err := os.Symlink("left", temp); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"a", "b"} {
		if err := Symlink(to, path, temp, func(string) {}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(path); err != nil || got != to {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Symlink("c", filepath.Join(dir, "sub"), temp, func(string) {}); err == nil {
		t.Error("a directory was replaced")
	}
	if diff := cmp.Diff([]string{"latest", "sub"}, names(t, dir)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// A device or a pipe, or a link to one, is not replaced by a file.
func TestOnlyFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	fifo, link, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	for _, err := range []error{unix.Mkfifo(fifo, 0o600), os.Symlink("/dev/null", link), os.Symlink("nowhere", file)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, replaced := range map[string]bool{fifo: false, link: false, file: true} {
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		err = Write(path, 0o600, func(io.Writer) error { return nil })
		if replaced != (err == nil) || !replaced && !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", path, err)
		}
		if after, err := os.Lstat(path); err != nil || os.SameFile(before, after) == replaced {
			t.Errorf("%s: replaced %v, want %v (%v)", path, !replaced, replaced, err)
		}
	}
}

// Whatever takes the place of something below a Dir, or of the directory itself,
// nothing outside of it is opened, made or removed.
func TestDirCannotBeLeft(t *testing.T) {
	top := t.TempDir()
	in, out := filepath.Join(top, "in"), filepath.Join(top, "out")
	err := errors.Join(
		os.MkdirAll(filepath.Join(in, "sub"), 0o755), os.Mkdir(out, 0o755),
		os.WriteFile(filepath.Join(out, "file"), []byte("theirs"), 0o600),
		os.Symlink("../out", filepath.Join(in, "link")),
		os.Symlink("../../out/file", filepath.Join(in, "sub/file")),
		unix.Mkfifo(filepath.Join(in, "fifo"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenDir(in)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, _, err := d.OpenRegular("sub/file"); !errors.Is(err, ErrSymlink) {
		t.Errorf("a link to a file: %v", err)
	}
	if _, _, err := d.OpenRegular("fifo"); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a FIFO: %v", err)
	}
	for what, call := range map[string]func() error{
		"open":    func() error { _, _, err := d.OpenRegular("link/file"); return err },
		"parent":  func() error { _, _, err := d.OpenRegular("../out/file"); return err },
		"stat":    func() error { _, err := d.Stat("link/file"); return err },
		"mkdir":   func() error { return d.Mkdir("link/new", 0o755) },
		"symlink": func() error { return d.Symlink("x", "link/new") },
		"remove":  func() error { return d.Remove("link/file") },
		"rename":  func() error { return d.Rename("fifo", "link/new") },
		"list":    func() error { _, err := d.Names("link"); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s left the directory", what)
		}
	}
	// A directory that is removed may have links in it.
	if err := d.RemoveAll("sub"); err != nil {
		t.Error(err)
	}
	f, err := CreateIn(d, "model", Options{Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Discard()
	moved := filepath.Join(top, "moved")
	if err := errors.Join(os.Rename(in, moved), os.Symlink("out", in), f.Commit()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"file"}, names(t, out)); diff != "" {
		t.Errorf("names outside (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"fifo", "link", "model"}, names(t, moved)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestTarget(t *testing.T) {
	for path, want := range map[string]string{
		"/d/" + PartName("film"):         "/d/film",
		PartName("a.b"):                  "a.b",
		TempName("/d/model.bin"):         "/d/model.bin",
		"/d/plain":                       "/d/plain",
		"/d/" + PartSuffix:               "/d/" + PartSuffix,
		"/d/" + Suffix:                   "/d/" + Suffix,
		"/d/." + Suffix:                  "/d/." + Suffix,
		"/d/.x" + Suffix:                 "/d/.x" + Suffix,
		"/d/film" + PartSuffix:           "/d/film" + PartSuffix,
		"/d/." + PartName("film") + "/f": "/d/." + PartName("film") + "/f",
		"":                               "",
	} {
		if got := Target(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
