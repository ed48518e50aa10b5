package object

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

var schemes = []string{"s3", "https", "http"}

// IsURL reports whether a path names an object.
func IsURL(p string) bool {
	scheme, _, ok := strings.Cut(p, "://")
	if !ok {
		return false
	}
	for _, s := range schemes {
		if strings.EqualFold(scheme, s) {
			return true
		}
	}
	return false
}

// Parse splits a URL. Keys of S3 are taken literally: what follows the bucket is the
// key, whatever characters it has.
func Parse(p string) (*url.URL, error) {
	scheme, rest, _ := strings.Cut(p, "://")
	if scheme = strings.ToLower(scheme); scheme == "s3" {
		bucket, key, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return nil, fmt.Errorf("%s: want s3://BUCKET/KEY", p)
		}
		return &url.URL{Scheme: scheme, Host: bucket, Path: "/" + key}, nil
	}
	u, err := url.Parse(p)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%s: not a URL such as https://HOST/PATH", Redact(p))
	}
	u.Scheme = scheme
	return u, nil
}

// Redact removes what may be secret from a URL: user, password and query.
func Redact(p string) string {
	scheme, rest, ok := strings.Cut(p, "://")
	if !ok || strings.EqualFold(scheme, "s3") {
		return p
	}
	rest, _, query := strings.Cut(rest, "?")
	host, tail, slash := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if slash {
		host += "/" + tail
	}
	if query {
		host += "?..."
	}
	return scheme + "://" + host
}

// cutQuery splits a URL at its query. Keys of S3 may have a question mark.
func cutQuery(p string) (base, query string, ok bool) {
	if scheme, _, _ := strings.Cut(p, "://"); strings.EqualFold(scheme, "s3") {
		return p, "", false
	}
	return strings.Cut(p, "?")
}

// Join adds a name to a URL that is a directory.
func Join(dir, name string) string {
	base, query, ok := cutQuery(dir)
	base = strings.TrimSuffix(base, "/") + "/" + name
	if ok {
		base += "?" + query
	}
	return base
}

// Dir is the URL of the directory that contains an object.
func Dir(p string) string {
	base, query, ok := cutQuery(p)
	scheme, rest, _ := strings.Cut(base, "://")
	base = scheme + "://" + path.Dir(rest) + "/"
	if ok {
		base += "?" + query
	}
	return base
}

// Base is the last part of a URL's path.
func Base(p string) string {
	base, _, _ := cutQuery(p)
	return path.Base(base)
}
