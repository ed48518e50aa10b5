package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/object"
	. "github.com/culvert-io/culvert/internal/object/objecttest"
)

// bucketAt makes s3://bucket/ that of a handler.
func bucketAt(t *testing.T, h http.Handler) {
	t.Helper()
	object.Register("s3", Open)
	BucketAt(t, h)
	t.Cleanup(func() {
		if b, _, err := object.BucketOf(t.Context(), "s3://bucket/"); err == nil {
			b.(*bucket).http.CloseIdleConnections()
		}
	})
}

const partSize = 8 << 20

func write(t *testing.T, u *object.Upload, data []byte) error {
	t.Helper()
	for off := (len(data) - 1) / partSize * partSize; off >= 0; off -= partSize { // the last first
		if err := u.Write(t.Context(), data[off:min(off+partSize, len(data))], int64(off)); err != nil {
			return err
		}
	}
	return nil
}

// An object appears with Commit, as a whole, whatever happens to single requests.
func TestUpload(t *testing.T) {
	store := NewStore(map[string][]byte{"a": []byte("old")})
	store.Abandon("a", 2*time.Hour)
	store.Abandon("a", time.Minute) // somebody may be writing it
	store.Abandon("ab", 2*time.Hour)
	faults := &Faults{Handler: store}
	faults.On(func(n int, r *http.Request) Fault {
		if r.Method != http.MethodHead && n%3 == 2 {
			return []Fault{CutEarly, SlowDown, Broken}[n/3%3]
		}
		return None
	})
	bucketAt(t, faults)
	data := Bytes(2*partSize+12345, 1)
	u, err := object.Create(t.Context(), "s3://bucket/a", int64(len(data)), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(t, u, data); err != nil {
		t.Fatal(err)
	}
	if got, _ := store.Object("a"); string(got) != "old" {
		t.Fatal("visible before it is complete")
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := u.Discard(t.Context()); err != nil {
		t.Error(err)
	}
	if got, _ := store.Object("a"); !bytes.Equal(got, data) {
		t.Error("the object differs")
	}
	if store.Uploads() != 2 {
		t.Errorf("%d uploads left, want those of others", store.Uploads())
	}
	if o := u.TakeOrigin(); o.Requests < 6 || o.Bytes < int64(len(data)) || !strings.HasPrefix(o.Store, "s3+http://") {
		t.Errorf("%+v", o)
	}
}

// Whatever happens to any request of an upload, or to its answer: if it succeeds, the
// object has the right bytes; if not, there is an error, and the object is the old one or
// the new one, as a whole.
func TestUploadFaults(t *testing.T) {
	faults := map[string]http.Handler{} // by bucket
	object.Register("s3", func(_ context.Context, u *url.URL) (object.Bucket, error) {
		return serve(t, faults[u.Host], u.Host, credentials("AKIDEXAMPLE", "")), nil
	})
	t.Cleanup(object.Forget)
	data := Bytes(1000, 2)
	const requests = 5 // stat, uploads, begin, part, complete
	for _, fault := range slices.Concat(AnswerFaults, SentFaults) {
		for at := range requests {
			name := fmt.Sprintf("%s-%d", strings.ReplaceAll(fault.String(), " ", "-"), at)
			store := NewStore(map[string][]byte{"a": []byte("old")})
			store.Bucket = name
			f := &Faults{Handler: store}
			faults[name] = f
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				uploadWithFault(t, store, f, fault, at, data)
			})
		}
	}
}

// uploadWithFault makes one upload, one request of which meets a fault.
func uploadWithFault(t *testing.T, store *Store, f *Faults, fault Fault, at int, data []byte) {
	sent := slices.Contains(SentFaults, fault)
	var hit atomic.Pointer[http.Request]
	f.On(func(n int, r *http.Request) Fault {
		if n != at || sent && r.ContentLength == 0 {
			return None
		}
		hit.Store(r.Clone(t.Context()))
		return fault
	})
	url := "s3://" + store.Bucket + "/a"
	u, err := object.Create(t.Context(), url, int64(len(data)), false)
	if err == nil {
		err = errors.Join(write(t, u, data), u.Commit(t.Context()))
		_ = u.Discard(t.Context())
	}
	r := hit.Load()
	if r == nil {
		if !sent || at > 2 {
			t.Error("there was no such request")
		}
		return
	}
	if got, _ := store.Object("a"); !bytes.Equal(got, data) && (err == nil || string(got) != "old") {
		t.Errorf("%v, and the object has %d bytes", err, len(got))
	}
	repeated := r.Method == http.MethodPut && (fault == SentCorrupt || fault == SentShort)
	if err != nil && (repeated || !mayFail[fault] || !strings.Contains(err.Error(), url)) {
		t.Errorf("%s %s: %v", r.Method, r.URL.RawQuery, err)
	}
	// The name of an upload whose first answer was spoiled is not known.
	if n := store.Uploads(); n > 1 || n == 1 && !r.URL.Query().Has("uploads") {
		t.Errorf("%d uploads are left", n)
	}
}

// mayFail are the faults that no repetition undoes: the store is not what it seems.
var mayFail = map[Fault]bool{Truncate: true, Longer: true, Corrupt: true, Redirect: true, Replace: true, SentCorrupt: true, SentShort: true, SentAside: true}

// An upload that is given up leaves nothing.
func TestDiscard(t *testing.T) {
	store := NewStore(nil)
	faults := &Faults{Handler: store}
	removals := 0
	faults.On(func(_ int, r *http.Request) Fault {
		if r.Method != http.MethodDelete {
			return None
		}
		removals++
		return []Fault{Broken, CutEarly, None}[removals-1]
	})
	bucketAt(t, faults)
	data := Bytes(partSize+1, 1)
	u, err := object.Create(t.Context(), "s3://bucket/a", int64(len(data)), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Write(t.Context(), data[:partSize], 0); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err == nil {
		t.Error("committed without its last part")
	}
	if err := u.Write(t.Context(), data, 0); err == nil {
		t.Error("a part of the wrong size is accepted")
	}
	if err := u.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if store.Uploads() != 0 || len(store.Keys()) != 0 {
		t.Errorf("%d uploads, objects %v", store.Uploads(), store.Keys())
	}
}

// Of two uploads at the same time, the second to end does not replace the first.
func TestConditionalCommit(t *testing.T) {
	for _, old := range []map[string][]byte{nil, {"a": []byte("old")}} {
		store := NewStore(old)
		store.Set("other", nil)
		bucketAt(t, store)
		var uploads []*object.Upload
		for i := range 2 {
			u, err := object.Create(t.Context(), "s3://bucket/a", 10, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Write(t.Context(), Bytes(10, uint64(i)), 0); err != nil {
				t.Fatal(err)
			}
			uploads = append(uploads, u)
		}
		if err := uploads[1].Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := uploads[0].Commit(t.Context()); !errors.Is(err, fs.ErrExist) {
			t.Errorf("error %v", err)
		}
		if got, _ := store.Object("a"); !bytes.Equal(got, Bytes(10, 1)) {
			t.Error("the first was replaced")
		}
	}
}

// A store without conditional writes gets the object as a whole, and the receipt says that
// two writers overwrite each other. One that is seen to be there is not overwritten.
func TestNoConditionalWrites(t *testing.T) {
	for _, status := range []int{http.StatusNotImplemented, http.StatusMethodNotAllowed, http.StatusBadRequest} {
		for _, n := range []int{0, 10} {
			store := NewStore(map[string][]byte{"a": []byte("old")})
			store.NoConditions = status
			bucketAt(t, store)
			for _, replaced := range []bool{false, true} {
				u, err := object.Create(t.Context(), "s3://bucket/a", int64(n), false)
				if err != nil {
					t.Fatal(err)
				}
				if n > 0 {
					err = u.Write(t.Context(), Bytes(n, 1), 0)
				}
				if replaced {
					store.Set("a", []byte("of another writer"))
				}
				err = errors.Join(err, u.Commit(t.Context()))
				got, _ := store.Object("a")
				switch o := u.TakeOrigin(); {
				case replaced && (!errors.Is(err, object.ErrChanged) || string(got) != "of another writer"):
					t.Errorf("%d: %v, and the object is %q", status, err, got)
				case !replaced && (err != nil || !bytes.Equal(got, Bytes(n, 1)) || !o.Unconditional || o.Retries != 0):
					t.Errorf("%d: %v, %d bytes, %v", status, err, len(got), o)
				}
				if err := u.Discard(t.Context()); err != nil || store.Uploads() != 0 {
					t.Errorf("%d uploads are left, %v", store.Uploads(), err)
				}
			}
			if _, err := object.Put(t.Context(), "s3://bucket/b", []byte("text"), object.Condition{Nothing: true}); err != nil {
				t.Error(err)
			}
		}
	}
}

// A store may answer 200 and say in the body that it failed. That is what the status would
// have said.
func TestCompleteThatFails(t *testing.T) {
	t.Setenv("CULVERT_OBJECT_ATTEMPTS", "2")
	for _, c := range []struct {
		code     string
		requests int
		slow     bool
		is       error
	}{{"InternalError", 2, false, nil}, {"SlowDown", 2, true, nil}, {"PreconditionFailed", 1, false, object.ErrChanged}} {
		store := NewStore(nil)
		requests := 0
		bucketAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
				requests++
				_, _ = fmt.Fprintf(w, `<Error><Code>%s</Code><Message>text of the store</Message></Error>`, c.code)
				return
			}
			store.ServeHTTP(w, r)
		}))
		u, err := object.Create(t.Context(), "s3://bucket/a", 10, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Write(t.Context(), Bytes(10, 1), 0); err != nil {
			t.Fatal(err)
		}
		err = u.Commit(t.Context())
		e, ok := errors.AsType[*object.Error](err)
		if !ok || e.Code != c.code || e.Retry().Slow != c.slow || c.is != nil && !errors.Is(err, c.is) || requests != c.requests {
			t.Errorf("%s, %d requests: %v", c.code, requests, err)
		}
	}
}

// How old an upload is, the store's clock says: one of another host is not abandoned
// because the clock of this host is wrong, or the store does not say when it began.
func TestAgeOfUploads(t *testing.T) {
	store := NewStore(nil)
	const behind = 3 * time.Hour
	store.Abandon("a", behind+time.Minute)
	store.Abandon("a", behind+2*time.Hour)
	bucketAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-behind).UTC().Format(http.TimeFormat))
		store.ServeHTTP(w, r)
	}))
	if _, err := object.Put(t.Context(), "s3://bucket/b", []byte("text"), object.Condition{}); err != nil {
		t.Fatal(err)
	}
	object.Sweep(t.Context(), "s3://bucket/a", time.Hour)
	if store.Uploads() != 1 {
		t.Errorf("%d uploads are left, want that of a minute ago", store.Uploads())
	}
	list, err := parsePending([]byte(`<ListMultipartUploadsResult><Upload><Key>a</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>`), time.Now())
	if err != nil || len(list) != 1 || list[0].Age != 0 {
		t.Errorf("an upload of unknown age: %+v, %v", list, err)
	}
}

// An answer to Commit that is lost does not make it fail.
func TestLostAnswer(t *testing.T) {
	store := NewStore(nil)
	lost := false
	bucketAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") && !lost {
			lost = true
			store.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		store.ServeHTTP(w, r)
	}))
	u, err := object.Create(t.Context(), "s3://bucket/a", 10, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Write(t.Context(), Bytes(10, 1), 0); err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSmallWrites(t *testing.T) {
	store := NewStore(nil)
	bucketAt(t, store)
	u, err := object.Create(t.Context(), "s3://bucket/empty", 0, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := object.Put(t.Context(), "s3://bucket/b", []byte("text"), object.Condition{Nothing: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := object.Put(t.Context(), "s3://bucket/b", []byte("other"), object.Condition{Nothing: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v", err)
	}
	if keys := store.Keys(); !slices.Equal(keys, []string{"b", "empty"}) {
		t.Errorf("objects %v", keys)
	}
	if err := object.Remove(t.Context(), "s3://bucket/b"); err != nil || len(store.Keys()) != 1 {
		t.Errorf("%v, %v", err, store.Keys())
	}
	if _, err := object.Create(t.Context(), "s3://bucket/", 1, false); err == nil {
		t.Error("a bucket is accepted as an object")
	}
	if _, err := object.Create(t.Context(), "s3://nobucket/a", 1, false); err == nil || !strings.Contains(err.Error(), "there is no bucket nobucket") {
		t.Errorf("error %v", err)
	}
}
