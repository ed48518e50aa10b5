package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// forest makes a source directory of every kind of thing.
func forest(t *testing.T) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "src")
	rng := rand.NewChaCha8([32]byte{3})
	for i, name := range []string{"a.bin", "b.bin", "empty", "sub/c.bin", "sub/deep/d.bin", "sub/deep/e.bin", "z.bin"} {
		path := filepath.Join(src, name)
		data := make([]byte, []int{300_000, 1, 0, 70_000, 4096, 1_500_001, 12}[i])
		rng.Read(data)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o640); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(1_700_000_000+int64(i), 123456789)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Mkdir(filepath.Join(src, "hollow"), 0o750),
		os.Symlink("sub/c.bin", filepath.Join(src, "link")),
		os.Symlink("nowhere", filepath.Join(src, "sub/dangling")),
		os.Chmod(filepath.Join(src, "a.bin"), 0o400),
		os.Chmod(filepath.Join(src, "sub/deep"), 0o777), // which no umask leaves so
	)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// contents describes everything below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		st, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			all[rel] = fmt.Sprintf("directory %v", st.Mode().Perm())
		case st.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			all[rel] = "link to " + target
		default:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[rel] = fmt.Sprintf("%v %v %d %x", st.Mode(), st.ModTime().UnixNano(), len(data), sumBytes(data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sameTree(t *testing.T, src, dst string) {
	t.Helper()
	if d := cmp.Diff(contents(t, src), contents(t, dst)); d != "" {
		t.Errorf("the copy differs (-source +copy):\n%s", d)
	}
}

// keep makes copies that are the same in everything.
var keep = Options{Preserve: true}

func plan(t *testing.T, src, dst string) *Tree {
	t.Helper()
	tree, err := PlanTree(t.Context(), src, dst, PlanOptions{Preserve: true})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func openDir(t *testing.T, path string) *atomicfile.Dir {
	t.Helper()
	d, err := atomicfile.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// record writes a file into the journal as it is, and says that it was copied with options.
func record(t *testing.T, j *journal, src, dst string, f *TreeFile, o Options) {
	t.Helper()
	from, err := openDir(t, src).Stat(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	to, err := openDir(t, dst).Stat(f.Path)
	if err == nil {
		err = j.add([]*waiting{{file: f, fileCopy: &fileCopy{source: from, dest: *to, opts: o}}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCopyTree(t *testing.T) {
	drv := newDriver(t)
	src := forest(t)
	dst := filepath.Join(t.TempDir(), "dst")
	res, err := plan(t, src, dst).Copy(t.Context(), drv, TreeOptions{Options: Options{Preserve: true, Verify: true, Buffer: 1 << 20}, Jobs: 3})
	if err != nil {
		t.Fatal(err)
	}
	sameTree(t, src, dst)
	if res.Files != 7 || res.Done != 0 || res.Links != 2 || res.Bytes != 300_000+1+70_000+4096+1_500_001+12 || !res.Verified ||
		res.Read.Bytes != res.Bytes || res.Write.Bytes != res.Bytes {
		t.Errorf("result %+v", res)
	}
	// Again, over what is there: files are replaced, and what else is there stays.
	if err := os.WriteFile(filepath.Join(dst, "sub/c.bin"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dst, "mine"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := plan(t, src, dst).Copy(t.Context(), drv, TreeOptions{Options: keep}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dst, "mine")); string(got) != "mine" {
		t.Error("a file that the source does not have is gone")
	}
	if err := os.Remove(filepath.Join(dst, "mine")); err != nil {
		t.Fatal(err)
	}
	sameTree(t, src, dst)
}

func TestTreeFollows(t *testing.T) {
	src := forest(t)
	if err := os.Remove(filepath.Join(src, "sub/dangling")); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "dst")
	tree, err := PlanTree(t.Context(), src, dst, PlanOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Links) != 0 {
		t.Errorf("links %v", tree.Links)
	}
	if _, err := tree.Copy(t.Context(), newDriver(t), TreeOptions{Options: keep}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(src, "sub/c.bin"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(filepath.Join(dst, "link"))
	got, rerr := os.ReadFile(filepath.Join(dst, "link"))
	if err != nil || rerr != nil || !st.Mode().IsRegular() || string(got) != string(want) {
		t.Errorf("the link became %v, %v, %v", st, err, rerr)
	}
	if err := os.Symlink("..", filepath.Join(src, "sub/loop")); err != nil {
		t.Fatal(err)
	}
	if _, err := PlanTree(t.Context(), src, dst, PlanOptions{Follow: true}); err == nil || !strings.Contains(err.Error(), "symbolic link loop") {
		t.Errorf("a loop: %v", err)
	}
}

func TestPlanTreeRefuses(t *testing.T) {
	src := forest(t)
	other := t.TempDir()
	file := filepath.Join(other, "file")
	under := filepath.Join(other, "under")
	over := filepath.Join(other, "over")
	err := errors.Join(
		os.WriteFile(file, nil, 0o600),
		os.Mkdir(under, 0o700), os.WriteFile(filepath.Join(under, "sub"), nil, 0o600),
		os.MkdirAll(filepath.Join(over, "a.bin"), 0o700),
		os.Symlink(src, filepath.Join(other, "alias")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ src, dst, says string }{
		{filepath.Join(other, "none"), filepath.Join(other, "x"), "no such file"},
		{src, file, "is a file"},
		{src, src, "is inside"},
		{src, filepath.Join(src, "sub/new/copy"), "is inside"},
		{src, filepath.Join(other, "alias/copy"), "is inside"},
		{src, under, "sub is a file"},
		{src, over, "a.bin is a directory"},
	} {
		if _, err := PlanTree(t.Context(), tt.src, tt.dst, PlanOptions{}); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s to %s: %v, want %q", tt.src, tt.dst, err, tt.says)
		}
	}
	// A neighbour whose name begins alike is none of this.
	if _, err := PlanTree(t.Context(), src, src+"2", PlanOptions{}); err != nil {
		t.Error(err)
	}
}

func TestTreeSkips(t *testing.T) {
	src := forest(t)
	if err := unix.Mkfifo(filepath.Join(src, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree := plan(t, src, filepath.Join(t.TempDir(), "dst"))
	if len(tree.Skipped) != 1 || tree.Skipped[0].Path != "pipe" || !strings.Contains(tree.String(), "skip     pipe: ") {
		t.Errorf("skipped %v", tree.Skipped)
	}
}

// A copy that is stopped leaves whole files and its journal; the next one goes on.
func TestStoppedTreeGoesOn(t *testing.T) {
	drv := newDriver(t)
	src := forest(t)
	for stop := int64(1); ; stop++ {
		dst := filepath.Join(t.TempDir(), "dst")
		ctx, cancel := context.WithCancel(t.Context())
		var steps atomic.Int64
		_, err := plan(t, src, dst).Copy(ctx, drv, TreeOptions{Options: Options{Preserve: true, Buffer: 256 << 10, named: stop%2 == 0, step: func() {
			if steps.Add(1) == stop {
				cancel()
			}
		}}, Jobs: 2})
		cancel()
		if err == nil {
			if stop < 10 {
				t.Fatalf("%d steps", stop)
			}
			sameTree(t, src, dst)
			return
		}
		stopped, ok := errors.AsType[*StoppedError](err)
		if !errors.Is(err, context.Canceled) || ok && stopped.Of != 7 {
			t.Fatalf("stopped: %v", err)
		}
		onlyWhole(t, src, dst, nil)
		for name := range contents(t, dst) {
			if base := filepath.Base(name); base != JournalName && strings.HasPrefix(base, ".culvert-") {
				t.Errorf("%s was left behind", name)
			}
		}
		tree := plan(t, src, dst)
		_, done, _, _ := tree.Totals()
		if ok && done != stopped.Files {
			t.Errorf("stopped with %d files, the journal has %d", stopped.Files, done)
		}
		res, err := tree.Copy(t.Context(), drv, TreeOptions{Options: keep})
		if err != nil || res.Done != done || res.Files != 7-done {
			t.Fatalf("going on: %+v, %v", res, err)
		}
		sameTree(t, src, dst)
	}
}

// onlyWhole fails where a file under its own name is neither the source's nor
// the one that was there before.
func onlyWhole(t *testing.T, src, dst string, old map[string]string) {
	t.Helper()
	want := contents(t, src)
	for name, got := range contents(t, dst) {
		w, ok := want[name]
		if ok && !strings.HasPrefix(w, "directory") && got != w && got != old[name] {
			t.Errorf("%s is broken: %s, want %s", name, got, w)
		}
	}
	for name := range old {
		if _, err := os.Lstat(filepath.Join(dst, name)); err != nil {
			t.Errorf("%s was there before: %v", name, err)
		}
	}
}

// What the journal says counts only as long as it is true.
func TestJournalIsChecked(t *testing.T) {
	drv := newDriver(t)
	src := forest(t)
	dst := filepath.Join(t.TempDir(), "dst")
	if _, err := plan(t, src, dst).Copy(t.Context(), drv, TreeOptions{Options: keep}); err != nil {
		t.Fatal(err)
	}
	dir := openDir(t, dst)
	j, err := openJournal(dir, plan(t, src, dst).source)
	if err != nil {
		t.Fatal(err)
	}
	tree := plan(t, src, dst)
	for i := range tree.Files {
		record(t, j, src, dst, &tree.Files[i], keep)
	}
	// While it is open nobody else copies there.
	if _, err := tree.Copy(t.Context(), drv, TreeOptions{Options: keep}); err == nil || !strings.Contains(err.Error(), "another culvert cp") {
		t.Errorf("two copies at a time: %v", err)
	}
	// A line that is not whole, as a crash leaves it.
	if _, err := j.file.WriteString(`{"done":"b.bi`); err != nil {
		t.Fatal(err)
	}
	if err := j.close(false); err != nil {
		t.Fatal(err)
	}
	if _, done, _, _ := plan(t, src, dst).Totals(); done != 7 {
		t.Errorf("%d of 7 files are done", done)
	}
	// What is added behind such a line counts.
	j, err = openJournal(dir, tree.source)
	if err == nil {
		err = errors.Join(j.write(journalLine{Done: "later"}), j.close(false))
	}
	if err != nil {
		t.Fatal(err)
	}
	if j, err := readJournal(dir, tree.source); err != nil || j.done["later"].Done == "" || len(j.done) != 8 {
		t.Errorf("the journal has %v, %v", j.done, err)
	}
	now := time.Now()
	err = errors.Join(
		os.Remove(filepath.Join(dst, "b.bin")),                                   // gone
		os.WriteFile(filepath.Join(dst, "z.bin"), []byte("short"), 0o600),        // not what it was
		os.Chtimes(filepath.Join(src, "sub/deep/d.bin"), now, now),               // the source is newer
		os.WriteFile(filepath.Join(src, "sub/c.bin"), []byte("changed"), 0o600),  // and has changed
		os.WriteFile(filepath.Join(src, "sub/new.bin"), []byte("unseen"), 0o600), // and has more
	)
	if err != nil {
		t.Fatal(err)
	}
	res, err := plan(t, src, dst).Copy(t.Context(), drv, TreeOptions{Options: keep})
	if err != nil || res.Files != 5 || res.Done != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	sameTree(t, src, dst)
}

func TestJournalOfAnother(t *testing.T) {
	src := forest(t)
	dst := t.TempDir()
	j, err := openJournal(openDir(t, dst), "/some/where")
	if err == nil {
		err = j.close(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := PlanTree(t.Context(), src, dst, PlanOptions{}); err == nil || !strings.Contains(err.Error(), "unfinished copy of /some/where") {
		t.Errorf("another's journal: %v", err)
	}
	if _, err := PlanTree(t.Context(), dst, filepath.Join(t.TempDir(), "x"), PlanOptions{}); err == nil || !strings.Contains(err.Error(), "is an unfinished copy") {
		t.Errorf("an unfinished source: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dst, JournalName), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PlanTree(t.Context(), src, dst, PlanOptions{}); err == nil || !strings.Contains(err.Error(), "not a journal") {
		t.Errorf("no journal: %v", err)
	}
}

// A file that cannot be copied does not keep the others from it.
func TestOneFileFails(t *testing.T) {
	drv := newDriver(t)
	src := forest(t)
	dst := filepath.Join(t.TempDir(), "dst")
	tree := plan(t, src, dst)
	if err := os.Remove(filepath.Join(src, "b.bin")); err != nil {
		t.Fatal(err)
	}
	res, err := tree.Copy(t.Context(), drv, TreeOptions{Options: keep})
	stopped, ok := errors.AsType[*StoppedError](err)
	if !ok || stopped.Files != 6 || stopped.Of != 7 || !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), "b.bin") != 1 || res.Files != 6 {
		t.Errorf("%+v, %v", res, err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("{\"culvert_cp\":1,\"source\":\"/s\",\"id\":\"x\"}\n{\"done\":\"a\",\"bytes\":1}\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		j := &journal{path: "j", done: map[string]journalLine{}}
		if err := j.parse(text, "/s"); err == nil && strings.Trim(j.id, idLetters) != "" {
			t.Errorf("id %q", j.id)
		}
	})
}
