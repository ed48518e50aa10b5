package transfer

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/object/objecttest"
)

// bucketAt makes s3://bucket/ that of a handler, which is asked twice at most.
func bucketAt(t *testing.T, h http.Handler) {
	t.Helper()
	t.Setenv("CULVERT_OBJECT_ATTEMPTS", "2")
	objecttest.BucketAt(t, h)
}

func TestUploadFile(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	store := objecttest.NewStore(nil)
	bucketAt(t, store)
	for _, n := range []int{0, 1, 9<<20 + 5} {
		data := objecttest.Bytes(n, 3)
		src := filepath.Join(dir, "source")
		if err := os.WriteFile(src, data, 0o600); err != nil {
			t.Fatal(err)
		}
		res, err := UploadFile(t.Context(), drv, src, "s3://bucket/a/copy", Options{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := store.Object("a/copy"); !ok || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: the object differs", n)
		}
		if w := res.Write; !res.Verified || w.Bytes != int64(n) || w.Origin.Bytes < int64(n) || w.Origin.Requests == 0 {
			t.Errorf("receipt %v", w)
		}
	}
}

// A part that cannot be written ends the upload, not only its own worker.
func TestUploadStopsAtTheFirstError(t *testing.T) {
	drv := newDriver(t)
	src, _ := writeFile(t, t.TempDir(), 9<<20)
	store := objecttest.NewStore(nil)
	bucketAt(t, objecttest.RefusesPart2(store))
	_, err := UploadFile(t.Context(), drv, src, "s3://bucket/a", Options{})
	if !errors.Is(err, fs.ErrPermission) || store.Uploads() != 0 {
		t.Errorf("%v, %d uploads", err, store.Uploads())
	}
}

// A store that fails in the middle keeps the old object and no parts.
func TestUploadFileFails(t *testing.T) {
	drv := newDriver(t)
	src, _ := writeFile(t, t.TempDir(), 9<<20)
	store := objecttest.NewStore(map[string][]byte{"a": []byte("old")})
	faults := &objecttest.Faults{Handler: store}
	faults.On(func(_ int, r *http.Request) objecttest.Fault {
		if r.URL.Query().Get("partNumber") == "2" {
			return objecttest.Broken
		}
		return objecttest.None
	})
	bucketAt(t, faults)
	_, err := UploadFile(t.Context(), drv, src, "s3://bucket/a", Options{})
	if err == nil || !strings.Contains(err.Error(), "s3://bucket/a") {
		t.Errorf("error %v", err)
	}
	if got, _ := store.Object("a"); string(got) != "old" || store.Uploads() != 0 {
		t.Errorf("%d bytes at the key, %d uploads", len(got), store.Uploads())
	}
}
