package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRealPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.Symlink("a/b", filepath.Join(dir, "rel")),
		os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "abs")), os.Symlink("../rel/f", filepath.Join(dir, "a/f")),
		os.Symlink("none", filepath.Join(dir, "dangling")), os.Symlink("loop", filepath.Join(dir, "loop")))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, tt := range []struct {
		path, want string // "" means an error
	}{
		{"x", "x"},
		{"a/b", "a/b"},
		{"a/b/", "a/b"},
		{".", "."},
		{"rel/x", "a/b/x"},
		{"rel/../x", "a/x"}, // the parent of the directory, not of the link
		{dir + "/abs//./b/x", dir + "/a/b/x"},
		{"abs/f", dir + "/a/b/f"},
		{"dangling", "none"},
		{"/", "/"},
		{"loop", ""},
		{"none/x", ""},
		{"", ""},
	} {
		got, err := RealPath(tt.path)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("RealPath(%q) = %q, %v, want %q", tt.path, got, err, tt.want)
		}
	}
}

// A link that another user has put into a directory of all users is not followed,
// anywhere in a path. Links of root, of the directory's owner and of this user are.
func TestLinksOfOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: to make links of other users")
	}
	const other, third = 65534, 65533
	for _, tt := range []struct {
		name        string
		mode        uint32
		owner, link int
		followed    bool
	}{
		{"other's link", 0o1777, 0, other, false},
		{"without sticky bit", 0o777, 0, other, false},
		{"own link", 0o1777, third, 0, true},
		{"link of the directory's owner", 0o1777, other, other, true},
		{"of another than the owner", 0o1777, other, third, false},
		{"directory of a group", 0o775, 0, other, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			shared, target := filepath.Join(dir, "shared"), filepath.Join(dir, "target")
			link := filepath.Join(shared, "link")
			err := errors.Join(os.Mkdir(shared, 0o700), os.Mkdir(target, 0o700), os.Symlink(target, link),
				os.Lchown(link, tt.link, 0), os.Chown(shared, tt.owner, 0), unix.Chmod(shared, tt.mode))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{link, filepath.Join(link, "file")} {
				_, err := RealPath(path)
				if (err == nil) != tt.followed || err != nil && !errors.Is(err, ErrUntrusted) {
					t.Errorf("RealPath(%s): %v", path, err)
				}
			}
			if d, err := OpenDir(link); (err == nil) != tt.followed {
				t.Errorf("OpenDir: %v", err)
			} else if err == nil {
				d.Close()
			}
			f, err := OpenTarget(filepath.Join(link, "file"), os.O_WRONLY|os.O_CREATE, 0o600)
			if (err == nil) != tt.followed {
				t.Errorf("OpenTarget: %v", err)
			}
			if err == nil {
				f.Close()
			}
		})
	}
}

// The links of /proc lead to what has no path.
func TestOpenTargetInProc(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	f, err := OpenTarget(procPath(w), os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	if _, err := f.WriteString("x"); err != nil {
		t.Error(err)
	}
	f.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}
