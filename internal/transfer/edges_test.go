package transfer

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// With Verify, a file that the journal lists is read, whatever its times say.
func TestVerifyReadsFinishedFiles(t *testing.T) {
	drv := newDriver(t)
	src := forest(t)
	dst := filepath.Join(t.TempDir(), "dst")
	if _, err := plan(t, src, dst).Copy(t.Context(), drv, TreeOptions{Options: keep}); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dst, "sub/c.bin")
	st, err := os.Stat(damaged)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, st.Size())
	if err := errors.Join(os.WriteFile(damaged, data, 0), os.Chtimes(damaged, st.ModTime(), st.ModTime())); err != nil {
		t.Fatal(err)
	}
	tree := plan(t, src, dst)
	j, err := openJournal(openDir(t, dst), tree.source)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tree.Files {
		record(t, j, src, dst, &tree.Files[i], keep)
	}
	if err := j.close(false); err != nil {
		t.Fatal(err)
	}
	tree = plan(t, src, dst)
	if _, done, _, _ := tree.Totals(); done != 7 {
		t.Fatalf("%d of 7 files are done", done)
	}
	res, err := tree.Copy(t.Context(), drv, TreeOptions{Options: Options{Preserve: true, Verify: true}})
	if err != nil || res.Files != 1 || res.Done != 6 || !res.Verified {
		t.Errorf("%+v, %v", res, err)
	}
	sameTree(t, src, dst)
}

// A file that was copied without owner and times is not finished for a copy that
// keeps them.
func TestPreservedIsRecorded(t *testing.T) {
	src := forest(t)
	dst := filepath.Join(t.TempDir(), "dst")
	tree := plan(t, src, dst)
	if _, err := tree.Copy(t.Context(), newDriver(t), TreeOptions{}); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(openDir(t, dst), tree.source)
	if err != nil {
		t.Fatal(err)
	}
	record(t, j, src, dst, &tree.Files[0], Options{})
	if err := j.close(false); err != nil {
		t.Fatal(err)
	}
	for preserve, want := range map[bool]int{false: 1, true: 0} {
		tree, err := PlanTree(t.Context(), src, dst, PlanOptions{Preserve: preserve})
		if err != nil {
			t.Fatal(err)
		}
		if _, done, _, _ := tree.Totals(); done != want {
			t.Errorf("preserve %v: %d files are done, want %d", preserve, done, want)
		}
	}
}

// Only a journal that this user wrote is read or appended to.
func TestForeignJournal(t *testing.T) {
	src := forest(t)
	drv := newDriver(t)
	for name, put := range map[string]func(journal, victim string) error{
		"symbolic link": func(j, v string) error { return os.Symlink(v, j) },
		"hard link":     func(j, v string) error { return os.Link(v, j) },
		"FIFO":          func(j, _ string) error { return unix.Mkfifo(j, 0o600) },
		"writable": func(j, _ string) error {
			return errors.Join(os.WriteFile(j, []byte("{}\n"), 0o600), os.Chmod(j, 0o622))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			dst, victim := filepath.Join(dir, "dst"), filepath.Join(dir, "victim")
			err := errors.Join(os.Mkdir(dst, 0o755), os.WriteFile(victim, []byte("no newline"), 0o600), put(filepath.Join(dst, JournalName), victim))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan(t, src, dst).Copy(t.Context(), drv, TreeOptions{Options: keep}); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(victim); err != nil || string(got) != "no newline" {
				t.Errorf("the other file has %q, %v", got, err)
			}
			sameTree(t, src, dst)
		})
	}
	// One's own file of that name is not emptied either.
	dst := t.TempDir()
	path := filepath.Join(dst, JournalName)
	if err := os.WriteFile(path, []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(openDir(t, dst), src); err == nil || !strings.Contains(err.Error(), "not a journal") {
		t.Errorf("notes: %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "notes" {
		t.Errorf("notes are %q", got)
	}
}

// Directories that a stopped copy made get their modes, without what the umask takes.
func TestResumedModes(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	sub := filepath.Join(src, "sub")
	err := errors.Join(os.MkdirAll(sub, 0o755), os.WriteFile(filepath.Join(sub, "f"), []byte("f"), 0o644), os.Chmod(sub, 0o577))
	if err != nil {
		t.Fatal(err)
	}
	drv := newDriver(t)
	dst := filepath.Join(t.TempDir(), "dst")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, ctx := range []context.Context{ctx, t.Context()} {
		tree, err := PlanTree(t.Context(), src, dst, PlanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tree.Copy(ctx, drv, TreeOptions{Options: Options{step: cancel}})
		if (err == nil) != (ctx == t.Context()) {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(filepath.Join(dst, "sub"))
	if mask := unix.Umask(0o22); mask != 0o22 {
		unix.Umask(mask)
		t.Skipf("umask %o", mask)
	}
	if err != nil || st.Mode().Perm() != 0o555 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// The end of a file that is truncated is not a hole.
func TestTruncatedBehindAHole(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	f, err := os.Create(src)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, off := range []int64{0, 32 << 20} {
		if _, err := f.WriteAt(make([]byte, 1<<20), off); err != nil {
			t.Fatal(err)
		}
	}
	res, err := Copy(t.Context(), drv, src, dst, Options{Buffer: 1 << 20, Verify: true})
	if err != nil || res.Bytes != 2<<20 || res.Read.Bytes != 2<<20 || res.Holes != 31<<20 {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = Copy(t.Context(), drv, src, dst, Options{Buffer: 128 << 10, Advance: func(int64, int64) { os.Truncate(src, 2<<20) }})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a truncated file: %v", err)
	}
}

// acl is an access control list: the owner and user 65534 read and write, group and
// others nothing. The mode of such a file is 0660.
var acl = []byte{
	2, 0, 0, 0,
	1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, // owner
	2, 0, 6, 0, 0xfe, 0xff, 0, 0, // user 65534
	4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // group
	0x10, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, // mask
	0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // others
}

// A file that is replaced keeps its access control list, and none is inherited by
// one that had none.
func TestACL(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	src, _ := writeFile(t, dir, 10)
	sub := filepath.Join(dir, "sub")
	listed, plain, kept := filepath.Join(sub, "listed"), filepath.Join(sub, "plain"), filepath.Join(sub, "kept")
	err := os.Mkdir(sub, 0o755)
	for _, path := range []string{listed, plain, kept} {
		err = errors.Join(err, os.WriteFile(path, []byte("old"), 0o640))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(listed, aclName, acl, 0); err != nil {
		t.Skip("no access control lists:", err)
	}
	if err := unix.Setxattr(sub, "system.posix_acl_default", acl, 0); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{listed: string(acl), plain: "", kept: ""} {
		if _, err := Copy(t.Context(), drv, src, path, Options{Preserve: path == kept}); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 256)
		n, _ := unix.Getxattr(path, aclName, buf)
		if got := string(buf[:max(n, 0)]); got != want {
			t.Errorf("%s: access control list %x, want %x", path, got, want)
		}
	}
	if st, err := os.Stat(plain); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}
