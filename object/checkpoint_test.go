package object_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/objecttest"
	"github.com/culvert-io/culvert/tensor"
)

const run = "s3://bucket/run"

func saveStep(t *testing.T, c *tensor.Checkpoints, step int64) {
	t.Helper()
	list, _ := sources(uint64(step))
	if _, err := c.Save(t.Context(), step, list, nil); err != nil {
		t.Fatal(err)
	}
}

// numbers returns the steps in the order in which they were saved.
func numbers(t *testing.T, c *tensor.Checkpoints) (list []int64) {
	t.Helper()
	steps, err := c.Steps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		list = append(list, s.Number)
	}
	return list
}

// Checkpoints in a store are those of a directory: kept by when they were saved, never
// overwritten, and latest is the one that was saved last.
func TestCheckpoints(t *testing.T) {
	store := objecttest.NewStore(map[string][]byte{"run/notes.txt": nil, "run/step-1/model.safetensors": nil, "run/step-000000009/other": nil})
	objecttest.BucketAt(t, store)
	for _, dir := range []string{run, run + "/"} {
		c := &tensor.Checkpoints{Dir: dir, Keep: 2}
		base := int64(len(dir)) * 1000
		for _, step := range []int64{base + 10, base + 30, base + 20, base + 5} { // back to an earlier step
			saveStep(t, c, step)
		}
		if got := numbers(t, c); !slices.Equal(got, []int64{base + 20, base + 5}) {
			t.Errorf("steps %v", got)
		}
		for _, url := range []string{run + "/latest", run + "/latest/"} {
			if m, err := tensor.Open(url); err != nil || m.Files[0].Path != c.Path(base+5) {
				t.Errorf("%s: %v, %v", url, m, err)
			}
		}
		_, want := sources(uint64(base + 5))
		load(t, run+"/latest", want)
		if _, err := c.Save(t.Context(), base+5, nil, nil); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "never overwritten") {
			t.Errorf("a step twice: %v", err)
		}
		if _, err := tensor.Verify(t.Context(), c.Path(base+20)); err != nil {
			t.Error(err)
		}
	}
	for _, key := range []string{"run/notes.txt", "run/step-1/model.safetensors", "run/step-000000009/other"} {
		if _, ok := store.Object(key); !ok {
			t.Errorf("%s, which is no step, was removed", key)
		}
	}
	if store.Uploads() != 0 {
		t.Errorf("%d uploads are left", store.Uploads())
	}
	for _, url := range []string{"s3://bucket/none/latest", "s3://latest", "s3://latest/"} {
		if _, err := tensor.Open(url); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := (&tensor.Checkpoints{Dir: "s3://nobucket/run"}).Free(1); err == nil || !strings.Contains(err.Error(), "there is no bucket nobucket") {
		t.Errorf("a bucket that does not exist: %v", err)
	}
	if err := (&tensor.Checkpoints{Dir: "https://example.com/run"}).Free(1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a web server: %v", err)
	}
}

// A real directory with that name comes before the step that was saved last.
func TestLatestThatIsThere(t *testing.T) {
	files, want := shards(t, "run/latest/")
	objecttest.BucketAt(t, objecttest.NewStore(files))
	saveStep(t, &tensor.Checkpoints{Dir: run}, 1)
	load(t, run+"/latest", want)
}

// What killed saves have left of steps is removed a day later, and nothing else.
func TestSweptCheckpoints(t *testing.T) {
	const old, young = "run/step-000000001/model.safetensors.culvert.json", "run/step-000000002/model.safetensors.culvert.json"
	store := objecttest.NewStore(map[string][]byte{old: []byte("{}")})
	store.Now = time.Now
	store.Set(young, []byte("{}"))
	store.Abandon("run/step-000000001/model.safetensors", 25*time.Hour)
	store.Abandon("run/step-000000002/model.safetensors", time.Hour)
	store.Abandon("run/other", 25*time.Hour)
	objecttest.BucketAt(t, store)
	saveStep(t, &tensor.Checkpoints{Dir: run}, 3)
	if _, ok := store.Object(old); ok {
		t.Error("the manifest of a step that was never there is still there")
	}
	if _, ok := store.Object(young); !ok {
		t.Error("the manifest of a save in progress was removed")
	}
	if store.Uploads() != 2 {
		t.Errorf("%d uploads are left, want those of an hour ago and of another key", store.Uploads())
	}
}

// At every request a save of a step may be killed: all steps that are there are whole,
// the former one among them, and the next save goes on.
func TestKilledCheckpoint(t *testing.T) {
	t.Setenv("CULVERT_OBJECT_ATTEMPTS", "1")
	store := objecttest.NewStore(nil)
	objecttest.BucketAt(t, store)
	c := &tensor.Checkpoints{Dir: run, Keep: 1}
	saveStep(t, c, 1)
	next := int64(2)
	for after := 0; ; after++ {
		before := numbers(t, c)
		ctx, kill := context.WithCancel(t.Context())
		var mu sync.Mutex
		n := 0
		objecttest.BucketAt(t, oneByOne(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if n++; n > after {
				kill()
			}
			mu.Unlock()
			if ctx.Err() != nil { // the dead send nothing
				panic(http.ErrAbortHandler)
			}
			store.ServeHTTP(w, r)
		})))
		list, _ := sources(uint64(next))
		_, err := c.Save(ctx, next, list, nil)
		killed := ctx.Err() != nil
		kill()
		objecttest.BucketAt(t, store)
		now := numbers(t, c)
		for _, step := range now {
			if _, err := tensor.Verify(t.Context(), c.Path(step)); err != nil {
				t.Fatalf("killed after %d requests: step %d: %v", after, step, err)
			}
		}
		saved := slices.Contains(now, next)
		if !saved && !slices.Equal(now, before) {
			t.Fatalf("killed after %d requests: steps were %v, are %v", after, before, now)
		}
		if saved {
			if _, err := tensor.Open(run + "/latest"); err != nil {
				t.Fatal(err)
			}
			next++
		}
		if !killed {
			if err != nil || len(now) != 1 {
				t.Fatalf("steps %v, %v", now, err)
			}
			return
		}
	}
}

// Whoever saves at the same time, the steps that are left are whole.
func TestCheckpointsSideBySide(t *testing.T) {
	store := objecttest.NewStore(nil)
	objecttest.BucketAt(t, store)
	c := &tensor.Checkpoints{Dir: run, Keep: 1}
	var wg sync.WaitGroup
	for i := range int64(6) {
		list, _ := sources(uint64(i / 2))
		wg.Go(func() { // two for each step: one of them must fail
			_, err := c.Save(t.Context(), i/2, list, nil)
			if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, object.ErrChanged) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	steps := numbers(t, c)
	if len(steps) == 0 {
		t.Fatal("no step is left")
	}
	for _, step := range steps {
		if _, err := tensor.Verify(t.Context(), c.Path(step)); err != nil {
			t.Error(err)
		}
	}
	m, err := tensor.Open(run + "/latest")
	if err != nil || m.Files[0].Path != c.Path(steps[len(steps)-1]) {
		t.Errorf("latest is %v, %v of %v", m, err, steps)
	}
}

// Of two saves of one object at the same time, the one that fails leaves the manifest of
// the other, wherever it is overtaken.
func TestManifestOfTwoSaves(t *testing.T) {
	const url = "s3://bucket/model.safetensors"
	first, _ := sources(10)
	second, _ := sources(20)
	for _, replaced := range []bool{false, true} {
		for at := 0; ; at++ {
			store := objecttest.NewStore(nil)
			objecttest.BucketAt(t, store)
			if replaced {
				old, _ := sources(0)
				if _, err := tensor.Save(t.Context(), url, old, nil); err != nil {
					t.Fatal(err)
				}
			}
			overtaken := false
			var mu sync.Mutex
			n := 0
			objecttest.BucketAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				n++
				now := n-1 == at
				mu.Unlock()
				if now && !overtaken { // the second save begins and ends here
					overtaken = true
					if _, err := tensor.Save(t.Context(), url, second, nil); err != nil && !errors.Is(err, object.ErrChanged) {
						t.Error(err)
					}
				}
				store.ServeHTTP(w, r)
			}))
			_, err := tensor.Save(t.Context(), url, first, nil)
			if err != nil && !errors.Is(err, object.ErrChanged) {
				t.Fatal(err)
			}
			objecttest.BucketAt(t, store)
			if _, verr := tensor.Verify(t.Context(), url); verr != nil {
				t.Errorf("replaced %t, overtaken before request %d (%v): %v", replaced, at, err, verr)
			}
			if !overtaken {
				break
			}
			if keys := store.Keys(); len(keys) != 2 || store.Uploads() != 0 {
				t.Errorf("objects %v, %d uploads", keys, store.Uploads())
			}
		}
	}
}

// The step that was just saved stays, whatever the clock of the store says.
func TestClockOfTheStore(t *testing.T) {
	store := objecttest.NewStore(nil)
	now := time.Now()
	store.Now = func() time.Time {
		now = now.Add(-time.Hour)
		return now
	}
	objecttest.BucketAt(t, store)
	c := &tensor.Checkpoints{Dir: run, Keep: 1}
	saveStep(t, c, 1)
	saveStep(t, c, 2)
	if got := numbers(t, c); !slices.Contains(got, 2) {
		t.Errorf("steps %v", got)
	}
}
