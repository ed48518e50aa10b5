package client

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/object"
)

func TestParseContentRange(t *testing.T) {
	for s, want := range map[string][3]int64{
		"bytes 0-0/1": {0, 0, 1}, "bytes 5-9/10": {5, 9, 10}, "bytes 5-9/*": {5, 9, -1},
	} {
		a, b, n, err := ParseContentRange(s)
		if err != nil || [3]int64{a, b, n} != want {
			t.Errorf("%s: %d-%d/%d, %v", s, a, b, n, err)
		}
	}
	for _, s := range []string{
		"", "bytes", "bytes 0-9", "bytes 9-0/10", "bytes 0-10/10", "bytes -1-2/10", "bytes +0-2/10",
		"bytes 0-99999999999999999999/*", "chars 0-9/10", "bytes */10", "bytes 0-9/x",
	} {
		if _, _, _, err := ParseContentRange(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-9/10")
	f.Fuzz(func(t *testing.T, s string) {
		a, b, n, err := ParseContentRange(s)
		if err == nil && (a < 0 || b < a || n >= 0 && b >= n) {
			t.Errorf("%q: %d-%d/%d", s, a, b, n)
		}
	})
}

// An answer that is not exactly what was asked for is refused before a byte is used.
func TestCheckRange(t *testing.T) {
	info := &object.Info{Key: "a", Size: 100, ETag: `"1"`}
	answer := func(status int, length int64, h ...string) *http.Response {
		r := &http.Response{StatusCode: status, ContentLength: length, Header: http.Header{}}
		for i := 0; i < len(h); i += 2 {
			r.Header.Set(h[i], h[i+1])
		}
		return r
	}
	good := answer(206, 10, "Content-Range", "bytes 5-14/100", "ETag", `"1"`)
	if err := CheckRange(good, info, 5, 10); err != nil {
		t.Error(err)
	}
	if err := CheckRange(answer(200, 100, "ETag", `"1"`), info, 0, 100); err != nil {
		t.Error(err)
	}
	if err := CheckRange(answer(200, 100, "ETag", `"1"`, "Content-Encoding", "gzip"), info, 0, 100); err != nil {
		t.Errorf("an object that was compressed before it was stored: %v", err)
	}
	if err := CheckRange(answer(200, -1, "Content-Encoding", "gzip"), info, 0, 100); err == nil || !strings.Contains(err.Error(), `encodes it as "gzip"`) {
		t.Errorf("an object that is compressed on the way: %v", err)
	}
	for name, r := range map[string]*http.Response{
		"the whole object":  answer(200, 100),
		"another status":    answer(204, 10),
		"no version":        answer(206, 10, "Content-Range", "bytes 5-14/100"),
		"no Content-Range":  answer(206, 10),
		"another range":     answer(206, 10, "Content-Range", "bytes 6-15/100"),
		"a shorter body":    answer(206, 9, "Content-Range", "bytes 5-14/100"),
		"an unknown length": answer(206, -1, "Content-Range", "bytes 5-14/100"),
		"another size":      answer(206, 10, "Content-Range", "bytes 5-14/101"),
		"another version":   answer(206, 10, "Content-Range", "bytes 5-14/100", "ETag", `"2"`),
	} {
		if CheckRange(r, info, 5, 10) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Without an ETag that stands for exact bytes, other signs tell versions apart.
func TestVersionsWithoutETag(t *testing.T) {
	const monday, tuesday = "Mon, 02 Jan 2006 15:04:05 GMT", "Tue, 03 Jan 2006 15:04:05 GMT"
	at, err := http.ParseTime(monday)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		etag         string
		got, changed string
		same         bool
	}{
		{"", "", monday, true},
		{"", "", "", true},
		{"", "", tuesday, false},
		{"", `"1"`, monday, true}, // a listing that has none
		{"1", `"1"`, monday, true},
		{`W/"1"`, `W/"1"`, monday, true},
		{`W/"1"`, `W/"2"`, monday, false},
		{`W/"1"`, `W/"1"`, tuesday, false},
		{`"1"`, `"1"`, tuesday, true},
	} {
		info := &object.Info{Key: "a", Size: 100, ETag: c.etag, Modified: at.Add(700 * time.Millisecond)}
		r := &http.Response{StatusCode: http.StatusOK, ContentLength: 100, Header: http.Header{"Etag": {c.got}, "Last-Modified": {c.changed}}}
		if err := CheckRange(r, info, 0, 100); (err == nil) != c.same || err != nil && !errors.Is(err, object.ErrChanged) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-1": 0, "x": 0, "99999": time.Minute} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for seconds, want := range map[int]time.Duration{-5: 0, 7: 7 * time.Second, 99999: time.Minute} {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		until := now.Add(time.Duration(seconds) * time.Second).Format(http.TimeFormat)
		if got := RetryAfter(http.Header{"Retry-After": {until}, "Date": {now.Format(http.TimeFormat)}}); got != want {
			t.Errorf("%d seconds after the date of the answer: %v", seconds, got)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Setenv(ConnectionsVariable, "7")
	t.Setenv(RateVariable, "10M")
	if c, err := Limits(); err != nil || c.Connections != 7 || c.Rate != 10<<20 {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv(ConnectionsVariable, "0")
	if _, err := Limits(); err == nil {
		t.Error("0 connections are accepted")
	}
}

// The address of a proxy that net/http would ignore is an error, without its password.
func TestProxies(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "https_proxy"} {
		for text, ok := range map[string]bool{
			"": true, "http://u:hidden@h:1": true, "http://h/": true, "h:1": true, "h": true, "u:hidden@h:1": true, "socks5://h:1": true,
			"http://u:hidden@%zz": false, "http:/u:hidden@h": false, "http://": false, "ftp://u:hidden@h": false, "http://u:hidden@[": false,
		} {
			t.Setenv(name, text)
			if err := checkProxies(); (err == nil) != ok || err != nil && (strings.Contains(err.Error(), "hidden") || !strings.HasPrefix(err.Error(), name)) {
				t.Errorf("%s=%s: %v", name, text, err)
			}
		}
		t.Setenv(name, "")
	}
}
