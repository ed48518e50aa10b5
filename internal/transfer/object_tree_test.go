package transfer

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/internal/object/objecttest"
)

func objectTree(t *testing.T, dst string, toGPU bool, o PlanOptions) *ObjectTree {
	t.Helper()
	tree, err := PlanObjects(t.Context(), "s3://bucket/d/", dst, toGPU, o)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// The objects below a URL become files with their bytes and times. What is no file is
// named, and what is there already is left alone.
func TestObjectTree(t *testing.T) {
	drv := newDriver(t)
	want := map[string][]byte{
		"large": objecttest.Bytes(9<<20+5, 3), "b/small": objecttest.Bytes(70_000, 4), "b/c/one": {7}, "empty": {},
	}
	store := objecttest.NewStore(map[string][]byte{"e": {1}, "d/b/": {}, "d/../up": {1}, "d/b/x.tmp": {1}, "d/skip/a": {1}})
	for name, data := range want {
		store.Set("d/"+name, data)
	}
	bucketAt(t, store)
	dst := filepath.Join(t.TempDir(), "new")
	o := PlanOptions{Filter: mustFilter(t, nil, []string{"*.tmp", "skip"}), Update: true}
	tree := objectTree(t, dst, false, o)
	if len(tree.Skipped) != 1 || tree.Skipped[0].Path != "../up" {
		t.Errorf("skipped %v", tree.Skipped)
	}
	res, err := tree.Copy(t.Context(), drv, TreeOptions{Options: Options{Verify: true}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range want {
		if got, err := os.ReadFile(filepath.Join(dst, name)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if all, _ := filepath.Glob(filepath.Join(dst, "*")); len(all) != 3 {
		t.Errorf("the directory has %v", all)
	}
	if r := res.Read; res.Files != 4 || !res.Verified || r.Bytes != res.Bytes || r.Origin.Checksum != "crc32c" {
		t.Errorf("result %+v, read %v", res, res.Read)
	}
	if again := objectTree(t, dst, false, o); again.Unchanged != 4 || len(again.Files) != 0 {
		t.Errorf("a second time: %d unchanged, files %v", again.Unchanged, again.Files)
	}
}

// An object whose name no file can have, or whose directory is a file, stops no other.
func TestObjectsWithoutPlace(t *testing.T) {
	drv := newDriver(t)
	long := strings.Repeat("x", 300)
	store := objecttest.NewStore(map[string][]byte{"d/" + long: {1}, "d/" + long + "/in/a": {1}, "d/file/a": {1}, "d/link/a": {1}, "d/there/a": {1}})
	bucketAt(t, store)
	dst := t.TempDir()
	if err := os.WriteFile(filepath.Join(dst, "file"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(dst, "link")); err != nil {
		t.Fatal(err)
	}
	res, err := objectTree(t, dst, false, PlanOptions{}).Copy(t.Context(), drv, TreeOptions{})
	if res.Files != 1 || err == nil || !strings.Contains(err.Error(), "1 of 5") {
		t.Errorf("%d files, %v", res.Files, err)
	}
	for _, name := range []string{"xxx/in/a", "file/a", "link/a"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dst, "file")); err != nil || string(got) != "mine" {
		t.Errorf("the file that was there: %q, %v", got, err)
	}
}

// A small object costs one request, and its answer has the checksum. A wrong one fails
// alone.
func TestObjectsIntoGPU(t *testing.T) {
	drv := newDriver(t)
	store := objecttest.NewStore(map[string][]byte{"d/bad": objecttest.Bytes(5000, 9)})
	for i := range 20 {
		store.Set("d/"+string(rune('a'+i)), objecttest.Bytes(100_000+i, uint64(i)))
	}
	faults := &objecttest.Faults{Handler: store}
	faults.On(func(_ int, r *http.Request) objecttest.Fault {
		if strings.HasSuffix(r.URL.Path, "/bad") {
			return objecttest.Corrupt
		}
		return objecttest.None
	})
	bucketAt(t, faults)
	tree := objectTree(t, "gpu:0", true, PlanOptions{})
	before := faults.Requests()
	res, err := tree.Copy(t.Context(), drv, TreeOptions{Jobs: 3})
	if err == nil || !strings.Contains(err.Error(), "20 of 21") || !strings.Contains(err.Error(), "d/bad") {
		t.Fatalf("error %v", err)
	}
	// A slow answer is asked for a second time.
	if n := faults.Requests() - before; res.Files != 20 || n-int(res.Read.Origin.Hedges) != 21 {
		t.Errorf("%d files by %d requests", res.Files, n)
	}
	if !strings.Contains(res.String(), "to gpu:0: 20 files, ") || strings.Contains(res.String(), "wrote") {
		t.Errorf("%s", res)
	}
}

// Objects become files in groups: while some get their names, others wait for theirs.
func TestObjectsInGroups(t *testing.T) {
	drv := newDriver(t)
	store := objecttest.NewStore(nil)
	const files = 40
	for i := range files {
		store.Set(fmt.Sprintf("d/%d/%d", i%3, i), objecttest.Bytes(1000+i, uint64(i)))
	}
	bucketAt(t, store)
	dst := filepath.Join(t.TempDir(), "new")
	w := &waitingWatch{}
	res, err := objectTree(t, dst, false, PlanOptions{}).Copy(t.Context(), drv, TreeOptions{Jobs: 1, Watch: w})
	if err != nil || res.Files != files || w.ended != files {
		t.Fatalf("%d files, %d ended, %v", res.Files, w.ended, err)
	}
	// Without groups three could wait: one is published, one is next, one has just ended.
	if w.most < 5 {
		t.Errorf("at most %d files waited for their names", w.most)
	}
	for i := range files {
		got, err := os.ReadFile(filepath.Join(dst, fmt.Sprint(i%3), fmt.Sprint(i)))
		if err != nil || !bytes.Equal(got, objecttest.Bytes(1000+i, uint64(i))) {
			t.Errorf("file %d: %d bytes, %v", i, len(got), err)
		}
	}
}

// A waitingWatch counts the files that have their bytes and wait for their names.
type waitingWatch struct {
	mu           sync.Mutex
	filled, most int
	ended        int
}

func (w *waitingWatch) Began(*TreeFile)           {}
func (w *waitingWatch) Resumed(*TreeFile, int64)  {}
func (w *waitingWatch) Advanced(*TreeFile, int64) {}

func (w *waitingWatch) Filled(*TreeFile) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.filled++
	w.most = max(w.most, w.filled-w.ended)
}

func (w *waitingWatch) Ended(_ *TreeFile, _ *Result, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.ended++
	}
}

// Symbolic links below the destination are not followed, and an ended context leaves
// whole files only.
func TestObjectTreeLinksAndEnd(t *testing.T) {
	drv := newDriver(t)
	store := objecttest.NewStore(map[string][]byte{"d/b/a": {1}})
	bucketAt(t, store)
	dst, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dst, "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := objectTree(t, dst, false, PlanOptions{}).Copy(t.Context(), drv, TreeOptions{}); err == nil {
		t.Error("a symbolic link was followed")
	}
	if list, _ := os.ReadDir(other); len(list) != 0 {
		t.Errorf("written through the link: %v", list)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	empty := filepath.Join(t.TempDir(), "new")
	if _, err := objectTree(t, empty, false, PlanOptions{}).Copy(ctx, drv, TreeOptions{}); err == nil {
		t.Error("no error of an ended context")
	}
	if names, _ := filepath.Glob(filepath.Join(empty, "b", "*")); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
}

func TestNamesOfObjects(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a/b c": true, "é": true, "": false, "..": false, "../a": false, "a/../../b": false, "/a": false,
		"a//b": false, "./a": false, "a/": false, "a\x00b": false, "a/.": false,
	} {
		if why := unusable(name); (why == "") != ok {
			t.Errorf("%q: %q", name, why)
		}
	}
}

// A directory is uploaded file by file, with what the patterns choose.
func TestUploadTree(t *testing.T) {
	drv := newDriver(t)
	src := t.TempDir()
	want := map[string][]byte{"d/a": objecttest.Bytes(9<<20+5, 3), "d/b/c": {1, 2}, "d/empty": {}}
	for key, data := range want {
		p := filepath.Join(src, strings.TrimPrefix(key, "d/"))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(src, "b", "x.tmp"), []byte{1}, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	store := objecttest.NewStore(nil)
	bucketAt(t, store)
	up, err := PlanUploads(t.Context(), src, "s3://bucket/d", PlanOptions{Filter: mustFilter(t, nil, []string{"*.tmp"})})
	if err != nil {
		t.Fatal(err)
	}
	res, err := up.Copy(t.Context(), drv, TreeOptions{Options: Options{Verify: true}})
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range want {
		if got, _ := store.Object(key); !bytes.Equal(got, data) {
			t.Errorf("%s has %d bytes", key, len(got))
		}
	}
	if keys := store.Keys(); !slices.Equal(keys, []string{"d/a", "d/b/c", "d/empty"}) || res.Files != 3 || len(res.Skipped) != 1 {
		t.Errorf("keys %v, result %+v", keys, res)
	}
}
