// Package https reads objects of web servers that answer range requests, such as
// mirrors of model hubs.
package https

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/client"
	"github.com/culvert-io/culvert/internal/object/fetch"
)

// A server is a web server. Keys are paths with their query.
type server struct {
	base string // scheme and host
	user *url.Userinfo
	http *http.Client
	pool *fetch.Pool
}

// Open is the provider of https:// and http://.
func Open(_ context.Context, u *url.URL) (object.Bucket, error) {
	cfg, err := client.Limits()
	if err != nil {
		return nil, err
	}
	return New(u, cfg)
}

// New returns the web server of a URL.
func New(u *url.URL, cfg fetch.Config) (object.Bucket, error) {
	s := &server{base: u.Scheme + "://" + u.Host, user: u.User, pool: fetch.New(cfg)}
	var err error
	s.http, err = client.New(s.pool, true)
	return s, err
}

func (s *server) Store() string         { return s.base }
func (s *server) Pool() *fetch.Pool     { return s.pool }
func (s *server) URL(key string) string { return object.Redact(s.base + "/" + key) }

// Stat asks for one byte: servers that sign their redirects refuse HEAD, and the answer
// shows whether ranges work.
func (s *server) Stat(ctx context.Context, key string) (object.Info, error) {
	info := object.Info{Key: key}
	resp, err := s.do(ctx, "open", &info, func(h http.Header) { h.Set("Range", "bytes=0-0") })
	if err != nil {
		return info, err
	}
	defer client.Discard(resp.Body)
	info.ETag, info.Modified = resp.Header.Get("ETag"), client.Modified(resp.Header)
	switch resp.StatusCode {
	case http.StatusPartialContent:
		_, _, size, err := client.ParseContentRange(resp.Header.Get("Content-Range"))
		if err != nil {
			return info, s.fail("open", key, err)
		}
		if info.Size = size; size < 0 {
			return info, s.fail("open", key, &object.ProtocolError{Detail: "the server does not say how long it is"})
		}
		return info, nil
	case http.StatusRequestedRangeNotSatisfiable:
		if resp.Header.Get("Content-Range") == "bytes */0" {
			return info, nil // it is empty
		}
	case http.StatusOK:
		if resp.ContentLength == 0 {
			return info, nil
		}
		return info, &object.Error{
			Op: "open", Object: s.URL(key), Final: true, Detail: "the server answers no range requests",
			Fix: "download the file with another tool, or use a server that does",
		}
	}
	return info, s.refused("open", key, resp)
}

// Get asks for a range.
func (s *server) Get(ctx context.Context, info *object.Info, off, n int64) (object.Body, error) {
	resp, err := s.do(ctx, "read", info, func(h http.Header) { client.AskRange(h, info, off, n) })
	if err != nil {
		return object.Body{}, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		defer client.Discard(resp.Body)
		return object.Body{}, s.refused("read", info.Key, resp)
	}
	if err := client.CheckRange(resp, info, off, n); err != nil {
		resp.Body.Close() // of unknown length
		return object.Body{}, s.fail("read", info.Key, err)
	}
	return object.Body{ReadCloser: resp.Body}, nil
}

func (s *server) do(ctx context.Context, op string, info *object.Info, set func(http.Header)) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/"+info.Key, nil)
	if err != nil {
		return nil, &object.Error{Op: op, Object: s.URL(info.Key), Status: http.StatusBadRequest, Detail: "not a valid URL"}
	}
	if s.user != nil {
		password, _ := s.user.Password()
		req.SetBasicAuth(s.user.Username(), password)
	}
	set(req.Header)
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, s.fail(op, info.Key, client.Cause(ctx, err))
	}
	return resp, nil
}

func (s *server) fail(op, key string, err error) error { return object.Failed(op, s.URL(key), err) }

// refused is the error of an answer that is none of the wanted ones.
func (s *server) refused(op, key string, resp *http.Response) error {
	e := &object.Error{Op: op, Object: s.URL(key), Status: resp.StatusCode, After: client.RetryAfter(resp.Header)}
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		e.Detail = "the server has no such file"
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Detail, e.Fix = "the server does not permit it", "check the URL, its signature and when that ends"
	case http.StatusPreconditionFailed:
		e.Err = object.ErrChanged
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		e.Detail = "the server has too much to do"
	default:
		e.Detail = fmt.Sprintf("the server answered %q", http.StatusText(resp.StatusCode))
	}
	client.ByProxy(e, resp)
	return e
}
