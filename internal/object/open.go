package object

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// A Provider opens a bucket. It is called once for each bucket of a process.
type Provider func(ctx context.Context, u *url.URL) (Bucket, error)

var registry = struct {
	sync.Mutex
	providers map[string]Provider
	buckets   map[string]Bucket // by scheme, user and host
}{providers: map[string]Provider{}, buckets: map[string]Bucket{}}

// Register adds a scheme.
func Register(scheme string, p Provider) {
	registry.Lock()
	defer registry.Unlock()
	registry.providers[scheme] = p
}

// Forget closes no connection and ends no read, but makes later ones start anew, with
// the environment as it is then.
func Forget() {
	registry.Lock()
	defer registry.Unlock()
	clear(registry.buckets)
}

var program atomic.Pointer[context.Context]

// StopWith makes ctx the context of requests whose callers have none, such as those of
// tensor.Open and tensor.NewLoad. A command sets it, so that a signal ends them: a store
// that does not answer would keep it for half an hour.
func StopWith(ctx context.Context) { program.Store(&ctx) }

// Context is the context of requests whose callers have none. It ends with the program,
// unless StopWith has set another.
func Context() context.Context {
	if ctx := program.Load(); ctx != nil {
		return *ctx
	}
	return context.Background()
}

// BucketOf returns the bucket of a URL and the key in it.
func BucketOf(ctx context.Context, p string) (Bucket, string, error) {
	u, err := Parse(p)
	if err != nil {
		return nil, "", err
	}
	key := strings.TrimPrefix(u.Path, "/")
	if u.Scheme != "s3" {
		key = strings.TrimPrefix(u.RequestURI(), "/")
	}
	registry.Lock()
	defer registry.Unlock()
	name := u.Scheme + "://" + u.Host
	if u.User != nil {
		name = u.Scheme + "://" + u.User.String() + "@" + u.Host // of each user, whose password is sent
	}
	if b, ok := registry.buckets[name]; ok {
		return b, key, nil
	}
	provider, ok := registry.providers[u.Scheme]
	if !ok {
		return nil, "", fmt.Errorf("%s: this program has no %s:// (fix: import _ \"github.com/culvert-io/culvert/object\")", Redact(p), u.Scheme)
	}
	b, err := provider(ctx, u)
	if err != nil {
		return nil, "", err
	}
	registry.buckets[name] = b
	return b, key, nil
}

// Stat returns what the store says of an object.
func Stat(ctx context.Context, p string) (Info, error) {
	b, key, err := BucketOf(ctx, p)
	if err != nil {
		return Info{}, err
	}
	return stat(ctx, b, key, new(counts))
}

func stat(ctx context.Context, b Bucket, key string, c *counts) (info Info, err error) {
	err = b.Pool().Ask(ctx, &c.Counts, func(ctx context.Context) (err error) {
		info, err = b.Stat(ctx, key)
		return err
	})
	return info, err
}

// List returns the objects in a URL that is a directory. A store that cannot list is
// errors.ErrUnsupported.
func List(ctx context.Context, p string) ([]Info, error) { return list(ctx, p, false) }

// ListAll is List with the objects of directories below it.
func ListAll(ctx context.Context, p string) ([]Info, error) { return list(ctx, p, true) }

func list(ctx context.Context, p string, deep bool) ([]Info, error) {
	b, key, err := BucketOf(ctx, p)
	if err != nil {
		return nil, err
	}
	l, ok := b.(Lister)
	if !ok {
		return nil, fmt.Errorf("list %s: %w: web servers cannot list", Redact(p), errors.ErrUnsupported)
	}
	if key != "" && !strings.HasSuffix(key, "/") {
		key += "/"
	}
	var all []Info
	empty := 0
	for page, n := "", new(counts); ; {
		var list []Info
		var next string
		err := b.Pool().Ask(ctx, n.all(), func(ctx context.Context) (err error) {
			list, next, err = l.List(ctx, key, page, deep)
			return err
		})
		if err != nil {
			return nil, err
		}
		for i := range list {
			list[i].Name = strings.TrimPrefix(list[i].Key, key)
		}
		if all = append(all, list...); next == "" {
			return all, nil
		}
		page = next
		if empty++; len(list) > 0 {
			empty = 0
		}
		switch {
		case len(all) > maxListed:
			return nil, &Error{Op: "list", Object: b.URL(key), Final: true, Detail: "more objects than fit into memory", Fix: "name a longer prefix"}
		case empty > maxEmpty:
			return nil, &Error{Op: "list", Object: b.URL(key), Final: true, Detail: fmt.Sprintf("the listing goes on after %d pages without an object", maxEmpty), Fix: "name a longer prefix"}
		}
	}
}

// maxListed is the most objects of a listing, and maxEmpty the most pages in a row without
// one, for a store whose listing never ends.
const (
	maxListed = 10_000_000
	maxEmpty  = 10_000
)

// IsDirURL reports whether a URL can only stand for objects below it: it ends with a
// slash, or is a bucket.
func IsDirURL(p string) bool {
	base, _, _ := cutQuery(p)
	if strings.HasSuffix(base, "/") {
		return true
	}
	u, err := Parse(p)
	return err == nil && strings.Trim(u.Path, "/") == ""
}

// IsDir reports whether a URL stands for objects below it: it ends with a slash, or
// there is no such object but some below it.
func IsDir(ctx context.Context, p string) (bool, error) {
	if IsDirURL(p) {
		return true, nil
	}
	_, err := Stat(ctx, p)
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	below, lerr := List(ctx, p)
	if cause := context.Cause(ctx); cause != nil {
		return false, cause // what was not found may be there
	}
	if lerr != nil || len(below) == 0 {
		return false, err
	}
	return true, nil
}
