package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/objecttest"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/tensor"
)

// A sharded model of a bucket loads like one of files, by prefix and by index.
func TestLoadS3(t *testing.T) {
	files, want := shards(t, "org/model/")
	objecttest.BucketAt(t, objecttest.NewStore(files))
	for _, url := range []string{"s3://bucket/org/model", "s3://bucket/org/model/", "s3://bucket/org/model/model.safetensors.index.json"} {
		rep := load(t, url, want)
		if rep.Verified != len(want) || len(rep.Files) != 2 || rep.Files[0].Receipt.Origin.Requests == 0 {
			t.Errorf("%s: %d verified, %d files", url, rep.Verified, len(rep.Files))
		}
	}
	if _, err := tensor.Open("s3://bucket/org"); err == nil || !strings.HasSuffix(err.Error(), "no *.safetensors in it, but s3://bucket/org/model/") {
		t.Errorf("a prefix above a model: %v", err)
	}
}

func sources(seed uint64) (list []tensor.Source, want map[string][]byte) {
	want = map[string][]byte{}
	for i := range 3 {
		data := objecttest.Bytes(4<<20+i, seed+uint64(i))
		want[fmt.Sprint("t", i)] = data
		list = append(list, tensor.Source{Name: fmt.Sprint("t", i), Dtype: "U8", Shape: []int64{int64(len(data))}, Data: bytes.NewReader(data)})
	}
	return list, want
}

// What was saved as an object is there with its manifest, and is replaced as a whole.
func TestSaveS3(t *testing.T) {
	store := objecttest.NewStore(nil)
	objecttest.BucketAt(t, store)
	const url = "s3://bucket/run/model.safetensors"
	for seed := range uint64(2) {
		list, want := sources(10 * seed)
		var o route.Origin
		m, err := tensor.Save(t.Context(), url, list, &tensor.SaveOptions{Origin: &o})
		if err != nil {
			t.Fatal(err)
		}
		if o.Bytes < m.Size || o.Requests < 4 || o.Store == "" || o.Unconditional {
			t.Errorf("%+v", o)
		}
		if got, err := tensor.Verify(t.Context(), url); err != nil || got.Size != m.Size || got.Previous != nil {
			t.Errorf("%v, %v", got, err)
		}
		load(t, url, want)
	}
	if err := object.Remove(t.Context(), url+".culvert.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := tensor.Verify(t.Context(), url); !errors.Is(err, tensor.ErrNoManifest) {
		t.Errorf("without a manifest: %v", err)
	}
	if _, err := tensor.CreateManifest(t.Context(), url); err != nil {
		t.Error(err)
	}
	if _, err := tensor.Verify(t.Context(), url); err != nil {
		t.Error(err)
	}
	if keys := store.Keys(); !slices.Equal(keys, []string{"run/model.safetensors", "run/model.safetensors.culvert.json"}) || store.Uploads() != 0 {
		t.Errorf("objects %v, %d uploads", keys, store.Uploads())
	}
}

// A part that cannot be written ends the save, whatever the others wait for.
func TestSaveStopsAtTheFirstError(t *testing.T) {
	store := objecttest.NewStore(nil)
	objecttest.BucketAt(t, objecttest.RefusesPart2(store))
	list, _ := sources(1)
	_, err := tensor.Save(t.Context(), "s3://bucket/model.safetensors", list, nil)
	if !errors.Is(err, fs.ErrPermission) || store.Uploads() != 0 || len(store.Keys()) != 0 {
		t.Errorf("%v, %d uploads, objects %v", err, store.Uploads(), store.Keys())
	}
}

// At every request a save may be killed: the object is the old one or the new one, and
// its manifest describes it, whether or not the store has conditional writes.
func TestKilledSaveS3(t *testing.T) {
	t.Run("conditional", func(t *testing.T) { killSaves(t, 0) })
	t.Run("unconditional", func(t *testing.T) { killSaves(t, http.StatusNotImplemented) })
}

func killSaves(t *testing.T, noConditions int) {
	const url, key = "s3://bucket/model.safetensors", "model.safetensors"
	t.Setenv("CULVERT_OBJECT_ATTEMPTS", "1")
	old, _ := sources(0)
	list, _ := sources(10)
	for after := 0; ; after++ {
		store := objecttest.NewStore(nil)
		store.NoConditions = noConditions
		objecttest.BucketAt(t, store)
		if _, err := tensor.Save(t.Context(), url, old, nil); err != nil {
			t.Fatal(err)
		}
		before, _ := store.Object(key)
		ctx, kill := context.WithCancel(t.Context())
		n := 0
		faults := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n++; n > after && ctx.Err() == nil {
				kill()
			}
			if ctx.Err() != nil { // the dead send nothing
				panic(http.ErrAbortHandler)
			}
			store.ServeHTTP(w, r)
		})
		objecttest.BucketAt(t, oneByOne(faults))
		_, err := tensor.Save(ctx, url, list, nil)
		killed := ctx.Err() != nil
		kill()
		objecttest.BucketAt(t, store)
		if _, verr := tensor.Verify(t.Context(), url); verr != nil {
			t.Fatalf("killed after %d requests (%v): %v", after, err, verr)
		}
		now, _ := store.Object(key)
		if err == nil && bytes.Equal(now, before) {
			t.Errorf("the save succeeded after %d requests, and the object is the old one", after)
		}
		if !killed {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if err == nil || !errors.Is(err, context.Canceled) {
			t.Logf("killed after %d requests: %v", after, err)
		}
	}
}

// oneByOne serves one request at a time.
func oneByOne(h http.Handler) http.Handler {
	turn := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn <- struct{}{}
		defer func() { <-turn }()
		h.ServeHTTP(w, r)
	})
}
