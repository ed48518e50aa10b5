package object

import (
	"context"
	"errors"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/internal/object/fetch"
)

func TestLocations(t *testing.T) {
	for _, c := range []struct{ url, redacted, dir, base string }{
		{"s3://b/a/m.safetensors", "s3://b/a/m.safetensors", "s3://b/a/", "m.safetensors"},
		{"s3://b/odd?name=1", "s3://b/odd?name=1", "s3://b/", "odd?name=1"},
		{"https://u:p@h:1/a/m?sig=x", "https://h:1/a/m?...", "https://u:p@h:1/a/?sig=x", "m"},
		{"http://h/a/m", "http://h/a/m", "http://h/a/", "m"},
		{"S3://b/a?/m", "S3://b/a?/m", "S3://b/a?/", "m"},
	} {
		if got := Redact(c.url); got != c.redacted {
			t.Errorf("Redact(%s) is %s", c.url, got)
		}
		if got := Dir(c.url); got != c.dir {
			t.Errorf("Dir(%s) is %s", c.url, got)
		}
		if got := Base(c.url); got != c.base {
			t.Errorf("Base(%s) is %s", c.url, got)
		}
		if got := Join(Dir(c.url), c.base); got != c.url {
			t.Errorf("Join(%s, %s) is %s", Dir(c.url), c.base, got)
		}
		if IsDirURL(c.url) || !IsDirURL(Dir(c.url)) {
			t.Errorf("%s is a directory, or %s is none", c.url, Dir(c.url))
		}
		if !IsURL(c.url) {
			t.Errorf("%s is no URL", c.url)
		}
	}
	if IsDirURL("s3://b/a/?m") {
		t.Error("a key with a question mark is a directory")
	}
	for _, path := range []string{"a", "/a/b", "rdma://h/x", "s3:/x", "", "://"} {
		if IsURL(path) {
			t.Errorf("%q is a URL", path)
		}
	}
	for _, bad := range []string{"s3://", "https://", "https:///x", "http://\x00/"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("Parse accepts %q", bad)
		}
	}
}

func FuzzLocations(f *testing.F) {
	f.Add("s3://b/a/m", "x")
	f.Add("https://u:p@h/a?b=c", "m.safetensors")
	f.Fuzz(func(t *testing.T, p, name string) {
		_, _ = Parse(p)
		_, _, _, _ = IsURL(p), Redact(p), Dir(p), Base(p)
		_ = Join(p, name)
	})
}

// An endless is a bucket whose listing never ends.
type endless struct {
	Bucket
	pool *fetch.Pool
	n    int
}

func (e *endless) Pool() *fetch.Pool     { return e.pool }
func (e *endless) URL(key string) string { return "s3://endless/" + key }

func (e *endless) List(context.Context, string, string, bool) ([]Info, string, error) {
	e.n++
	return nil, strconv.Itoa(e.n % 2), nil
}

func TestEndlessListing(t *testing.T) {
	e := &endless{pool: fetch.New(fetch.Config{})}
	Register("s3", func(context.Context, *url.URL) (Bucket, error) { return e, nil })
	t.Cleanup(Forget)
	if _, err := List(t.Context(), "s3://endless/"); err == nil || !strings.Contains(err.Error(), "pages without an object") {
		t.Error(err)
	}
}

// The sum of an object does not depend on the order in which it was read.
func TestSums(t *testing.T) {
	data := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{1}).Read(data)
	want := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var cuts []int
		for at := 0; at < len(data); at += 1 + r.IntN(20_000) {
			cuts = append(cuts, at)
		}
		var s sums
		for _, i := range r.Perm(len(cuts)) {
			end := len(data)
			if i+1 < len(cuts) {
				end = cuts[i+1]
			}
			if _, ok := s.whole(int64(len(data))); ok {
				t.Fatal("whole before all was added")
			}
			part := data[cuts[i]:end]
			if !s.wants(int64(cuts[i]), int64(len(part))) {
				t.Fatal("a range that was not added is not wanted")
			}
			s.add(int64(cuts[i]), int64(len(part)), crc32c.Sum(part))
			s.add(int64(cuts[i]), 1, crc32c.Sum(part[:1])) // read again
			if s.wants(int64(cuts[i]), 1) {
				t.Fatal("a range is wanted twice")
			}
		}
		if got, ok := s.whole(int64(len(data))); !ok || got != want {
			t.Fatalf("%08x, %t; want %08x", got, ok, want)
		}
	}
	var s sums
	s.add(10, 10, 0)
	s.add(30, 10, 0)
	if m := s.missing(50); len(m) != 3 || m[0].n != 10 || m[1].off != 20 || m[1].n != 10 || m[2].off != 40 || m[2].n != 10 {
		t.Errorf("missing: %v", m)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err  Error
		want fetch.Retry
		is   error
	}{
		{Error{Status: 404}, fetch.Retry{Never: true}, fs.ErrNotExist},
		{Error{Status: 403}, fetch.Retry{Never: true}, fs.ErrPermission},
		{Error{Status: 412}, fetch.Retry{Never: true}, ErrChanged},
		{Error{Status: 503, After: 7}, fetch.Retry{Slow: true, After: 7}, nil},
		{Error{Status: 429}, fetch.Retry{Slow: true}, nil},
		{Error{Status: 500}, fetch.Retry{}, nil},
		{Error{}, fetch.Retry{}, nil},
		{Error{Final: true}, fetch.Retry{Never: true}, nil},
	} {
		if got := c.err.Retry(); got != c.want {
			t.Errorf("status %d: %+v, want %+v", c.err.Status, got, c.want)
		}
		if c.is != nil && !errors.Is(&c.err, c.is) {
			t.Errorf("status %d is not %v", c.err.Status, c.is)
		}
	}
}
