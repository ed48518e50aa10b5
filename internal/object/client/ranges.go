package client

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/object"
)

// AskRange sets the headers of a request for n bytes from off of one version of an
// object.
func AskRange(h http.Header, info *object.Info, off, n int64) {
	h.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	if Strong(info.ETag) {
		h.Set("If-Match", info.ETag)
	}
}

// Strong reports whether an ETag stands for exact bytes.
func Strong(etag string) bool { return etag != "" && !strings.HasPrefix(etag, "W/") }

// CheckRange checks that a successful answer has n bytes from off of that version, and
// nothing else. A server may answer a request for all bytes without a range.
func CheckRange(resp *http.Response, info *object.Info, off, n int64) error {
	wrong := func(format string, args ...any) error {
		return &object.ProtocolError{Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case resp.StatusCode == http.StatusOK && (off != 0 || n != info.Size):
		return wrong("the server sent the whole object instead of a range")
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode != http.StatusPartialContent:
		return wrong("the server answered a range request with status %d", resp.StatusCode)
	default:
		first, last, size, err := ParseContentRange(resp.Header.Get("Content-Range"))
		if err != nil {
			return err
		}
		if first != off || last != off+n-1 {
			return wrong("the server sent bytes %d-%d instead of %d-%d", first, last, off, off+n-1)
		}
		if size >= 0 && size != info.Size {
			return &object.Error{Op: "read", Object: info.Key, Status: http.StatusPreconditionFailed, Err: fmt.Errorf("%w: it has %d bytes now, and had %d", object.ErrChanged, size, info.Size)}
		}
	}
	if err := checkLength(resp, n); err != nil {
		return err
	}
	return checkVersion(resp, info)
}

// checkVersion checks that an answer is of the version that was opened. A server without
// ETags, or with weak ones, may have the time of the last change, in seconds.
func checkVersion(resp *http.Response, info *object.Info) error {
	got := resp.Header.Get("ETag")
	if Strong(info.ETag) && got == "" {
		return &object.ProtocolError{Detail: fmt.Sprintf("the server does not say that its answer is of version %.80s", info.ETag)}
	}
	same := info.ETag == "" || got == "" || unquoted(got) == unquoted(info.ETag)
	if at := Modified(resp.Header); !Strong(info.ETag) && !at.IsZero() && !info.Modified.IsZero() {
		same = same && at.Sub(info.Modified).Abs() < time.Second // listings have fractions
	}
	if !same {
		return &object.Error{Op: "read", Object: info.Key, Status: http.StatusPreconditionFailed, Err: object.ErrChanged}
	}
	return nil
}

// unquoted is an ETag without its quotes, which some stores forget.
func unquoted(etag string) string { return strings.Trim(etag, `"`) }

// checkLength checks the announced length. An answer of that length is as it is stored,
// also if it has a Content-Encoding: stores keep one with an object that was compressed
// before it was stored.
func checkLength(resp *http.Response, n int64) error {
	if resp.ContentLength == n {
		return nil
	}
	detail := fmt.Sprintf("the server announced %d bytes instead of %d", resp.ContentLength, n)
	if resp.ContentLength < 0 {
		detail = fmt.Sprintf("the server does not say that its answer has %d bytes", n)
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" {
		detail += fmt.Sprintf(", and encodes it as %.80q", enc)
	}
	return &object.ProtocolError{Detail: detail}
}

// ParseContentRange reads "bytes 0-9/100"; size is -1 for "*".
func ParseContentRange(s string) (first, last, size int64, err error) {
	bad := &object.ProtocolError{Detail: fmt.Sprintf("the server sent the Content-Range %.80q", s)}
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, total, ok2 := strings.Cut(rest, "/")
	a, b, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, bad
	}
	size = -1
	if total != "*" {
		if size, err = number(total); err != nil {
			return 0, 0, 0, bad
		}
	}
	first, err = number(a)
	last, err2 := number(b)
	if err != nil || err2 != nil || last < first || size >= 0 && last >= size {
		return 0, 0, 0, bad
	}
	return first, last, size, nil
}

// number parses digits only: ParseInt would take a sign.
func number(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err
}

// RetryAfter is how long a store asks to be left alone, in seconds or until a time by
// its clock; a minute at most.
func RetryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	var wait time.Duration
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if until, err := http.ParseTime(text); err == nil {
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		wait = until.Sub(now)
	}
	return max(min(wait, time.Minute), 0)
}

// Discard reads the rest of a small body, so that its connection can be used again,
// and closes it.
func Discard(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// Modified is the time of Last-Modified; zero if there is none.
func Modified(h http.Header) time.Time {
	t, _ := http.ParseTime(h.Get("Last-Modified"))
	return t
}
