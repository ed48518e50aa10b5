package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/fetch"
	. "github.com/culvert-io/culvert/internal/object/objecttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quick = fetch.Config{Parts: 3, MinPart: 1, Attempts: 4, Answer: 500 * time.Millisecond, Jitter: func() float64 { return 0 }}

func credentials(key, token string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: key, SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", SessionToken: token}, nil
	})
}

// serve serves a store and returns a client of a bucket of it.
func serve(t *testing.T, h http.Handler, name string, creds aws.CredentialsProvider) *bucket {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	b, err := newBucket(name, settings{region: "us-east-1", endpoint: srv.URL, credentials: creds}, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.http.CloseIdleConnections)
	return b
}

func connect(t *testing.T, h http.Handler) *bucket {
	return serve(t, h, "bucket", credentials("AKIDEXAMPLE", ""))
}

// The examples of AWS's documentation ("Signature Calculations for the Authorization
// Header").
func TestPublishedSignatures(t *testing.T) {
	b := &bucket{name: "examplebucket", credentials: credentials("AKIAIOSFODNN7EXAMPLE", "")}
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ method, url, hash, header, value, want string }{
		{"GET", "https://examplebucket.s3.amazonaws.com/test.txt", emptyHash, "Range", "bytes=0-9", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"GET", "https://examplebucket.s3.amazonaws.com/?lifecycle=", emptyHash, "", "", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", emptyHash, "", "", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		if err := b.sign(t.Context(), req, c.hash, "us-east-1", now); err != nil {
			t.Fatal(err)
		}
		if auth := req.Header.Get("Authorization"); !strings.HasSuffix(auth, "Signature="+c.want) {
			t.Errorf("%s: %s", c.url, auth)
		}
	}
}

// Keys may have any characters, and are escaped as signatures want it.
func TestAddress(t *testing.T) {
	for _, c := range []struct {
		set       settings
		name, key string
		want      string
	}{
		{settings{}, "b", "a/b c+d=ä?", "https://b.s3.eu-west-1.amazonaws.com/a/b%20c%2Bd%3D%C3%A4%3F?x=a%20b"},
		{settings{}, "b.with.dots", "k", "https://s3.eu-west-1.amazonaws.com/b.with.dots/k?x=a%20b"},
		{settings{pathStyle: true}, "b", "k", "https://s3.eu-west-1.amazonaws.com/b/k?x=a%20b"},
		{settings{endpoint: "http://h:1/base"}, "b", "k//l", "http://h:1/base/b/k//l?x=a%20b"},
		{settings{endpoint: "http://h:1", hostStyle: true}, "b", "k", "http://b.h:1/k?x=a%20b"},
	} {
		b := &bucket{name: c.name, set: c.set}
		u, err := b.address("eu-west-1", c.key, map[string][]string{"x": {"a b"}})
		if err != nil || u.String() != c.want {
			t.Errorf("%s, %v; want %s", u, err, c.want)
		}
	}
}

func open(t *testing.T, b *bucket, key string) *object.File {
	t.Helper()
	f, err := object.OpenIn(t.Context(), b, key, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// answers refuses every request.
func answers(status int, code string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `<Error><Code>%s</Code><Message>text of the store</Message></Error>`, code)
	})
}

// Each mistake has its own sentence.
func TestSentences(t *testing.T) {
	store := NewStore(map[string][]byte{"a": []byte("x")})
	good := credentials("AKIDEXAMPLE", "")
	for _, c := range []struct {
		name  string
		b     *bucket
		key   string
		words string
		is    error
	}{
		{"wrong key", serve(t, store, "bucket", credentials("OTHER", "")), "a", "does not know the access key", fs.ErrPermission},
		{"expired token", serve(t, store, "bucket", credentials("AKIDEXAMPLE", "expired")), "a", "session token has expired", nil},
		{"unknown bucket", serve(t, store, "other", good), "a", "there is no bucket other at http://", fs.ErrNotExist},
		{"unknown object", serve(t, store, "bucket", good), "b", "there is no such object", fs.ErrNotExist},
		{"wrong key at versitygw", serve(t, answers(http.StatusNotFound, "XAdminUserNotFound"), "bucket", good), "a", "does not know the access key", fs.ErrPermission},
		{"impossible bucket", serve(t, answers(http.StatusBadRequest, "InvalidBucketName"), "b", good), "a", `"b" is not a name of a bucket`, nil},
		{"a write beside another", serve(t, answers(http.StatusConflict, "ConditionalRequestConflict"), "bucket", good), "a", "another write of the object is in progress", nil},
		{"no credentials", serve(t, store, "bucket", aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, fmt.Errorf("outer: %w", errors.New("no EC2 role"))
		})), "a", "no credentials were found: no EC2 role", nil},
	} {
		_, err := object.OpenIn(t.Context(), c.b, c.key, "")
		if err == nil || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), c.b.URL(c.key)) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, is := range []error{fs.ErrPermission, fs.ErrNotExist} {
			if c.is != nil && errors.Is(err, is) != (is == c.is) {
				t.Errorf("%s: is %v: %t: %v", c.name, is, errors.Is(err, is), err)
			}
		}
	}
}

func TestList(t *testing.T) {
	objects := map[string][]byte{"other": nil, "m/deep/x": nil, "m/with space+plus": []byte("1")}
	for i := range 7 {
		objects[fmt.Sprintf("m/%d", i)] = []byte("12")
	}
	store := NewStore(objects)
	store.Page = 3
	faults := &Faults{Handler: store}
	faults.On(func(n int, _ *http.Request) Fault { return map[int]Fault{1: Broken}[n] })
	bucketAt(t, faults)
	list, err := object.List(t.Context(), "s3://bucket/m")
	dirs := slices.DeleteFunc(slices.Clone(list), func(i object.Info) bool { return !strings.HasSuffix(i.Key, "/") })
	if len(dirs) != 1 || dirs[0].Key != "m/deep/" || dirs[0].Name != "deep/" {
		t.Errorf("directories %v", dirs)
	}
	list = slices.DeleteFunc(list, func(i object.Info) bool { return strings.HasSuffix(i.Key, "/") })
	if err != nil || len(list) != 8 || list[0].Key != "m/0" || list[0].Name != "0" || list[0].Size != 2 || list[7].Key != "m/with space+plus" {
		t.Errorf("%v, %v", list, err)
	}
	if n := faults.Requests(); n != 4 {
		t.Errorf("%d requests for 3 pages, of which one was asked for twice", n)
	}
	if _, _, err := serve(t, store, "none", credentials("AKIDEXAMPLE", "")).List(t.Context(), "", "", false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a bucket that does not exist: %v", err)
	}
}

// A listing has what is below the prefix, or is no listing of it. ETags are those of headers.
func TestParseListing(t *testing.T) {
	page := func(contents string) ([]object.Info, error) {
		list, _, err := parseListing([]byte(`<ListBucketResult>`+contents+`<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes></ListBucketResult>`), "a/", "")
		return list, err
	}
	list, err := page(`<Contents><Key>a/x</Key><ETag>"1"</ETag></Contents><Contents><Key>a/y</Key><ETag>1</ETag></Contents><Contents><Key>a/z</Key></Contents>`)
	if err != nil || len(list) != 3 || list[0].ETag != `"1"` || list[1].ETag != `"1"` || list[2].ETag != "" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, key := range []string{"b/x", "", "a"} {
		if list, err := page(`<Contents><Key>` + key + `</Key></Contents>`); err == nil {
			t.Errorf("key %q: %+v", key, list)
		}
	}
}

// Whatever happens to an answer, the bytes are right or there is an error; what headers
// cannot show, the checksum of the store does.
func TestFaults(t *testing.T) {
	data := Bytes(300_000, 1)
	for _, c := range []struct {
		name  string
		fault Fault
		times int
		fails bool
	}{
		{"cut", Cut, 3, false},
		{"truncated", Truncate, 2, false},
		{"longer", Longer, 2, false},
		{"503", SlowDown, 2, false},
		{"500", Broken, 2, false},
		{"reordered", Reorder, 3, false},
		{"corrupted", Corrupt, 1, true},
		{"swapped", Swap, 3, true},
		{"replaced", Replace, 1, true},
		{"redirected", Redirect, 1, true}, // a signature holds for one address
		{"delayed", Delay, 1, false},
		{"lost", Lost, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &Faults{Handler: NewStore(map[string][]byte{"a": data})}
			b := connect(t, f)
			o := open(t, b, "a")
			if c.fault == Delay { // how fast the server answers must be known
				if _, err := o.ReadAt(make([]byte, 1000), 0); err != nil {
					t.Fatal(err)
				}
				o = open(t, b, "a")
			}
			f.On(func(n int, r *http.Request) Fault {
				other := c.fault == Reorder || c.fault == Swap
				if n < c.times && (!other || r.Header.Get("Range") == "bytes=100000-199999") {
					return c.fault
				}
				return None
			})
			got := make([]byte, len(data))
			_, err := o.ReadAt(got, 0)
			if c.fails != (err != nil) {
				t.Fatalf("error %v", err)
			}
			if err == nil && !bytes.Equal(got, data) {
				t.Fatal("wrong bytes were acknowledged")
			}
			if err == nil && o.TakeOrigin().Checksum != "crc32c" {
				t.Error("the checksum was not compared")
			}
		})
	}
}

// A bucket of another region is found there.
func TestRegion(t *testing.T) {
	store := NewStore(map[string][]byte{"a": []byte("x")})
	b := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "/eu-central-1/s3/") {
			w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
			w.WriteHeader(http.StatusMovedPermanently)
			return
		}
		store.ServeHTTP(w, r)
	}))
	if info := open(t, b, "a").Info(); info.Size != 1 || b.currentRegion() != "eu-central-1" {
		t.Errorf("%+v in %s", info, b.currentRegion())
	}
}

func FuzzXML(f *testing.F) {
	f.Add([]byte(`<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>`), "a", "t")
	f.Add([]byte(`<Error><Code>NoSuchKey</Code><Message>`+strings.Repeat("x", 300)+`</Message></Error>`), "", "")
	f.Add([]byte(`<ListMultipartUploadsResult><Upload><Key>a</Key><Initiated>2020-01-01T00:00:00Z</Initiated></Upload></ListMultipartUploadsResult>`), "", "")
	f.Fuzz(func(t *testing.T, text []byte, prefix, token string) {
		list, next, err := parseListing(text, prefix, token)
		if err == nil && next != "" && next == token {
			t.Error("the listing never ends")
		}
		for _, i := range list {
			if i.Key == "" || i.Size < 0 || !strings.HasPrefix(i.Key, prefix) {
				t.Errorf("%+v", i)
			}
		}
		if e := parseError(text); strings.ContainsAny(e.Message+e.Code, "\n\x1b") {
			t.Errorf("%q", e.Message)
		}
		_, _ = parsePending(text, time.Time{})
	})
}
