package tensor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// noise is n bytes that do not repeat.
func noise(n int64, seed uint64) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

func source(name string, d Dtype, seed uint64, shape ...int64) Source {
	n, _ := d.Size(shape) // some tests break the rules
	return Source{name, d, shape, bytes.NewReader(noise(n, seed))}
}

func sample() []Source {
	return []Source{
		source("odd", U8, 1, 5),
		source("layers.10.w", BF16, 2, 64, 64),
		source("layers.9.w", BF16, 3, 64, 64),
		source("half", F4, 4, 3, 2),
		source("bias", F32, 5, 33),
		source("empty", F32, 6, 0, 3),
		source("scalar", F64, 7),
		source("big", F32, 8, 100, 1000),
	}
}

// readTensor is the bytes of a tensor in a file.
func readTensor(t testing.TB, m *Model, name string) []byte {
	t.Helper()
	e, ok := m.Lookup(name)
	if !ok {
		t.Fatalf("%s is not there", name)
	}
	f, err := os.Open(m.Files[e.File].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, e.Len)
	if err := readFull(f, b, e.Off); err != nil {
		t.Fatal(err)
	}
	return b
}

func listDir(t testing.TB, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestSave(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	meta := map[string]string{"format": "pt", "note": "<é>\n"}
	made, err := Save(t.Context(), path, sample(), &SaveOptions{Metadata: meta, Chunk: 8192, workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Files[0]
	if f.Data%pageSize != 0 {
		t.Errorf("data starts at %d", f.Data)
	}
	if diff := cmp.Diff(meta, f.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	var order []string
	for _, e := range m.Tensors {
		order = append(order, e.Name)
	}
	want := []string{"empty", "layers.9.w", "layers.10.w", "big", "scalar", "bias", "half", "odd"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for _, s := range sample() {
		e, _ := m.Lookup(s.Name)
		if e.Dtype != s.Dtype || fmt.Sprint(e.Shape) != fmt.Sprint(s.Shape) {
			t.Errorf("%s came back as %v %v", s.Name, e.Dtype, e.Shape)
		}
		b := make([]byte, e.Len)
		readFull(s.Data, b, 0)
		if !bytes.Equal(b, readTensor(t, m, s.Name)) {
			t.Errorf("%s came back with other bytes", s.Name)
		}
	}
	verified, err := Verify(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, verified); diff != "" {
		t.Errorf("manifest (-made +read):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"m.safetensors", "m.safetensors.culvert.json"}, listDir(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
}

// No more chunks are written at a time than were asked for, however many are
// being filled, and all of them are told about.
func TestSaveTellsHowFarItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	var active, most, last atomic.Int64
	took := &SaveTimes{}
	made, err := Save(t.Context(), path, []Source{source("w", U8, 1, 64*pageSize)}, &SaveOptions{
		Chunk: pageSize, workers: 2, Times: took,
		step: func(point string) {
			if point == "write" {
				for n := active.Add(1); n > most.Load(); {
					most.Store(n)
				}
			}
		},
		Advance: func(done, total int64) {
			active.Add(-1)
			if done > total {
				t.Errorf("%d of %d bytes", done, total)
			}
			if done == total {
				last.Store(done)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if last.Load() != made.Size || most.Load() > 2 {
		t.Errorf("told of %d of %d bytes, %d writes at a time", last.Load(), made.Size, most.Load())
	}
	if took.Reserve <= 0 || took.Write <= 0 || took.Sync <= 0 || took.Publish <= 0 {
		t.Errorf("it took %+v", took)
	}
}

// A file with less than a page of data has no padding up to a page.
func TestSmallFilesAreSmall(t *testing.T) {
	for size, want := range map[int64]int64{0: 64, 1: 64, pageSize - 1: 72, pageSize: pageSize, 3 * pageSize: pageSize} {
		path := filepath.Join(t.TempDir(), "m.safetensors")
		if _, err := Save(t.Context(), path, []Source{source("w", U8, 1, size)}, nil); err != nil {
			t.Fatal(err)
		}
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if f := m.Files[0]; f.Data != want || f.Size != want+size {
			t.Errorf("%d bytes of data begin at %d, the file has %d", size, f.Data, f.Size)
		}
	}
}

// What Save writes can be read back, is aligned, and sums up.
func TestSaveRoundTrip(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	rapid.Check(t, func(t *rapid.T) {
		var sources []Source
		n := rapid.IntRange(0, 12).Draw(t, "tensors")
		for i := range n {
			d := rapid.SampledFrom(slices.Sorted(maps.Keys(dtypeBits))).Draw(t, "dtype")
			shape := rapid.SliceOfN(rapid.Int64Range(0, 40), 0, 3).Draw(t, "shape")
			if _, err := d.Size(shape); err != nil {
				shape = append(shape, 8)
			}
			sources = append(sources, source(fmt.Sprintf("t%d.%s", i, rapid.String().Draw(t, "name")), d, uint64(i), shape...))
		}
		chunk := pageSize * rapid.Int64Range(1, 5).Draw(t, "chunk")
		if _, err := Save(context.Background(), path, slices.Clone(sources), &SaveOptions{Chunk: chunk, workers: 2}); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(context.Background(), path); err != nil {
			t.Fatal(err)
		}
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sources {
			e, ok := m.Lookup(s.Name)
			if !ok {
				t.Fatalf("%q is not there", s.Name)
			}
			if size := int64(max(e.Dtype.Bits()/8, 1)); e.Off%size != 0 {
				t.Fatalf("%s %q lies at %d", e.Dtype, e.Name, e.Off)
			}
			if e.Len > 0 && e.Len%pageSize == 0 && e.Off%pageSize != 0 {
				t.Fatalf("%q has %d pages and lies at %d", e.Name, e.Len/pageSize, e.Off)
			}
			want := make([]byte, e.Len)
			readFull(s.Data, want, 0)
			if !bytes.Equal(want, text[e.Off:e.Off+e.Len]) {
				t.Fatalf("%q has other bytes", s.Name)
			}
		}
	})
}

func TestSaveRefuses(t *testing.T) {
	one := func(s Source) []Source { return []Source{s} }
	const tooLarge = "a header too large"
	tests := []struct {
		name    string
		sources []Source
		opts    *SaveOptions
		want    error
	}{
		{"a name twice", []Source{source("a", U8, 0, 1), source("a", U8, 0, 1)}, nil, brokenRule(ruleDuplicate)},
		{"the name of the metadata", one(source("__metadata__", U8, 0, 1)), nil, brokenRule(ruleMetadata)},
		{"a name that is not UTF-8", one(source("\xff", U8, 0, 1)), nil, brokenRule(ruleUTF8)},
		{"metadata that is not UTF-8", nil, &SaveOptions{Metadata: map[string]string{"a": "\xff"}}, brokenRule(ruleUTF8)},
		{"no dtype", one(Source{Name: "a"}), nil, brokenRule(ruleDtype)},
		{"half a byte", one(source("a", F4, 0, 3)), nil, brokenRule(ruleSubByte)},
		{"too large", one(source("a", U8, 0, 1<<40, 1<<40)), nil, brokenRule(ruleOverflow)},
		{"negative", one(Source{"a", U8, []int64{-1}, nil}), nil, brokenRule(ruleJSON)},
		{tooLarge, nil, &SaveOptions{Metadata: map[string]string{"a": strings.Repeat("a", maxHeader)}}, brokenRule(ruleHeaderMax)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && tt.name == tooLarge {
				t.Skip("encoding 100 MB takes 8 s under the race detector")
			}
			dir := t.TempDir()
			_, err := Save(t.Context(), filepath.Join(dir, "m"), tt.sources, tt.opts)
			if !isError(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if left := listDir(t, dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	// A source without bytes is found before a worker reads it.
	_, err := Save(t.Context(), filepath.Join(t.TempDir(), "m"), one(Source{"a", U8, []int64{3}, nil}), nil)
	if err == nil || !strings.Contains(err.Error(), `tensor "a": Data is nil`) {
		t.Errorf("no data: %v", err)
	}
	if _, err := Save(t.Context(), filepath.Join(t.TempDir(), "m"), one(Source{"a", U8, []int64{0}, nil}), nil); err != nil {
		t.Errorf("no data for no bytes: %v", err)
	}
	for _, chunk := range []int64{-4096, 1000, 5000, maxChunk + pageSize} {
		if _, err := Save(t.Context(), filepath.Join(t.TempDir(), "m"), nil, &SaveOptions{Chunk: chunk}); err == nil {
			t.Errorf("chunks of %d were accepted", chunk)
		}
	}
}

// failingSource stops in the middle.
type failingSource struct{ err error }

func (f failingSource) ReadAt(p []byte, off int64) (int, error) {
	if off >= 8192 {
		return 0, f.err
	}
	return len(p), nil
}

// When a save fails, the old file stays and nothing else does.
func TestSaveFailureLeavesTheOldFile(t *testing.T) {
	broken := errors.New("the GPU is gone")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name   string
		ctx    context.Context
		source Source
		want   error
	}{
		{"source fails", t.Context(), Source{"a", U8, []int64{20000}, failingSource{broken}}, broken},
		{"source is short", t.Context(), Source{"a", U8, []int64{20000}, bytes.NewReader(make([]byte, 19999))}, nil},
		{"cancelled", cancelled, source("a", U8, 0, 20000), context.Canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "m.safetensors")
			if _, err := Save(t.Context(), path, sample(), nil); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			_, err := Save(tt.ctx, path, []Source{tt.source}, &SaveOptions{Chunk: 4096, workers: 2})
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			after, _ := os.ReadFile(path)
			if !bytes.Equal(before, after) {
				t.Error("the old file has changed")
			}
			if _, err := Verify(t.Context(), path); err != nil {
				t.Error(err)
			}
			if left := listDir(t, dir); len(left) != 2 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestSaveKeepsModeAndLink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "link")
	if _, err := Save(t.Context(), path, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Symlink("m.safetensors", link)); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(t.Context(), link, sample(), nil); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if to, err := os.Readlink(link); err != nil || to != "m.safetensors" {
		t.Errorf("the link is %q, %v", to, err)
	}
	if _, err := Verify(t.Context(), path); err != nil {
		t.Error(err)
	}
	if _, err := Save(t.Context(), dir, nil, nil); err == nil {
		t.Error("a directory was replaced")
	}
}

// A link to no file is replaced, and the new file has its manifest.
func TestSaveOverADanglingLink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.Symlink("none", link); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(t.Context(), link, sample(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), link); err != nil {
		t.Error(err)
	}
	if st, err := os.Lstat(link); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%v, %v", st, err)
	}
}

// Behind a link ".." is the directory above the one that the link points to, for
// saves and loads as for the kernel.
func TestSaveBehindALink(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755), os.Symlink("a/b", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(t.Context(), filepath.Join(dir, "m.safetensors"), sample()[:1], nil); err != nil {
		t.Fatal(err)
	}
	path := dir + "/link/../m.safetensors"
	for range 2 { // a new file, and one that is replaced
		if _, err := Save(t.Context(), path, sample(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(t.Context(), path); err != nil {
			t.Error(err)
		}
	}
	for where, want := range map[string]int{path: len(sample()), filepath.Join(dir, "a", "m.safetensors"): len(sample()), filepath.Join(dir, "m.safetensors"): 1} {
		m, err := Open(where)
		if err != nil || len(m.Tensors) != want {
			t.Errorf("%s: %v, %v, want %d tensors", where, m, err, want)
		}
	}
	if _, err := Save(t.Context(), dir+"/none/../m.safetensors", sample(), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// The manifest of what is saved through a link is found through the link, at every
// moment.
func TestSaveThroughALinkIsVerified(t *testing.T) {
	dir := t.TempDir()
	blob, link := filepath.Join(dir, "blobs", "deadbeef"), filepath.Join(dir, "snapshots", "model.safetensors")
	if err := errors.Join(os.Mkdir(filepath.Dir(blob), 0o755), os.Mkdir(filepath.Dir(link), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(t.Context(), blob, sample()[:2], nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink("../blobs/deadbeef", link), os.Remove(blob+manifestSuffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateManifest(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	if got := ManifestPath(link); got != link+manifestSuffix {
		t.Errorf("the manifest is at %s", got)
	}
	opts := &SaveOptions{step: func(point string) {
		if _, err := Verify(t.Context(), link); err != nil {
			t.Errorf("before %s: %v", point, err)
		}
	}}
	if _, err := Save(t.Context(), link, sample(), opts); err != nil {
		t.Fatal(err)
	}
	if got := ManifestPath(link); got != blob+manifestSuffix {
		t.Errorf("the manifest is at %s", got)
	}
	for _, path := range []string{blob, link} {
		if _, err := Verify(t.Context(), path); err != nil {
			t.Error(err)
		}
	}
}

// Errors name what was asked for, not the temporary file that it is made in.
func TestSaveErrorsNameTheTarget(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	short := []Source{{"a", U8, []int64{3}, bytes.NewReader(nil)}}
	save := func(path string) error {
		_, err := Save(t.Context(), path, short, nil)
		return err
	}
	step := func(dir string, step int64) error {
		_, err := (&Checkpoints{Dir: dir}).Save(t.Context(), step, short, nil)
		return err
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{save(filepath.Join(dir, "none", "m.safetensors")), "create " + filepath.Join(dir, "none", "m.safetensors") + ": no such file or directory"},
		{save(filepath.Join(dir, "m.safetensors")), "saving " + filepath.Join(dir, "m.safetensors") + `: reading tensor "a" at 0: unexpected EOF`},
		{step(file, 1), "checkpoints in " + file + ": not a directory"},
		{step(filepath.Join(dir, "run"), 7), "saving " + filepath.Join(dir, "run", "step-000000007", "model.safetensors") + `: reading tensor "a" at 0: unexpected EOF`},
	} {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("%v, want %s", tt.err, tt.want)
		}
	}
}

// Whoever saves last wins, and nobody sees a mixture.
func TestSaveAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := Save(context.Background(), path, []Source{source("a", U8, uint64(i), 50000)}, &SaveOptions{Chunk: 4096})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got := readTensor(t, m, "a")
	if !slices.ContainsFunc([]uint64{0, 1, 2, 3, 4, 5, 6, 7}, func(i uint64) bool { return bytes.Equal(got, noise(50000, i)) }) {
		t.Error("the file is nobody's")
	}
	if _, err := Verify(t.Context(), path); err != nil {
		t.Error(err)
	}
	for _, name := range listDir(t, dir) {
		if strings.HasSuffix(name, atomicfile.Suffix) {
			t.Errorf("left behind: %s", name)
		}
	}
}

// The order of the steps is what makes a save safe.
func TestSaveSteps(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	for range 2 { // the second one replaces
		var mu sync.Mutex
		var log []string
		step := func(p string) {
			mu.Lock()
			defer mu.Unlock()
			if len(log) == 0 || log[len(log)-1] != p {
				log = append(log, p)
			}
		}
		replaced := false
		if _, err := os.Stat(path); err == nil {
			replaced = true
		}
		if _, err := Save(t.Context(), path, sample(), &SaveOptions{step: step, Chunk: 8192}); err != nil {
			t.Fatal(err)
		}
		manifest := []string{"create", "write manifest", "sync manifest", "rename", "sync directory"}
		want := slices.Concat([]string{"create", "allocate", "write", "truncate", "sync"}, manifest, []string{"rename", "sync directory"})
		if replaced {
			want = append(want, manifest...)
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
	}
}

// Whoever saves at the same time, and in whatever order, the latest step is there
// and nobody trips over what another removes.
func TestCheckpointsSideBySide(t *testing.T) {
	for round := range 5 {
		c := &Checkpoints{Dir: filepath.Join(t.TempDir(), "c"), Keep: 1}
		var g errgroup.Group
		for i := range int64(6) {
			g.Go(func() error {
				_, err := c.Save(t.Context(), 100-i, []Source{source("w", F32, 1, 64)}, nil)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		step, err := latestStep(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(t.Context(), c.Path(step)); err != nil {
			t.Fatalf("round %d: the latest step: %v", round, err)
		}
	}
}

// TestSmallFiles: less than a page of data is in the order of the safetensors package,
// more is in the order of alignment.
func TestSmallFiles(t *testing.T) {
	source := func(name string, d Dtype, n int64) Source {
		return Source{Name: name, Dtype: d, Shape: []int64{n}, Data: bytes.NewReader(make([]byte, 1<<16))}
	}
	for _, c := range []struct {
		last int64 // elements of the last tensor
		want string
	}{{7, "d a c w10 w2 b"}, {4096, "b a d c w2 w10"}} {
		f, _, header, err := arrange([]Source{
			source("w10", "U8", 1), source("w2", "U8", 1), source("a", "F32", 4), source("b", "BOOL", c.last),
			source("c", "I16", 1), source("d", "I64", 1),
		}, map[string]string{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, info := range f.Tensors {
			names = append(names, info.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%d bytes more: %s, want %s", c.last, got, c.want)
		}
		if text := string(header[lengthSize:]); !strings.HasPrefix(text, `{"__metadata__":{},"`) {
			t.Errorf("metadata without entries: the header is %s", text)
		}
	}
}
