package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/culvert-io/culvert/route"
)

// A Condition is what must be at a key when it is written. The zero value is anything.
type Condition struct {
	Nothing bool   // no object
	ETag    string // this version
}

// A Part is a part of an upload that the store has.
type Part struct {
	Number int
	ETag   string
	CRC32C uint32
}

// A Pending is an upload that was begun and not ended.
type Pending struct {
	Key, ID string
	Age     time.Duration // by the clock of the store; 0 if unknown
}

// A Writer is a Bucket that can be written. An upload is invisible until it is
// complete.
type Writer interface {
	Bucket
	Put(ctx context.Context, key string, data []byte, c Condition) (etag string, err error)
	Delete(ctx context.Context, key string) error
	Begin(ctx context.Context, key string) (id string, err error)
	PutPart(ctx context.Context, key, id string, number int, data []byte) (Part, error)
	Complete(ctx context.Context, key, id string, parts []Part, sum uint32, c Condition) (etag string, err error)
	Abort(ctx context.Context, key, id string) error
	// Pending lists uploads of keys that begin with prefix.
	Pending(ctx context.Context, prefix string) ([]Pending, error)
}

const (
	minPart  = 8 << 20 // S3 wants 5 MiB, except of the last
	maxParts = 10_000
	// abandoned is the age from which an upload to the same key is removed: whoever
	// made it was killed.
	abandoned = time.Hour
)

// PartSize is the size of the parts of an object of size bytes.
func PartSize(size int64) int64 {
	part := int64(minPart)
	for size > part*maxParts {
		part *= 2
	}
	return part
}

// An Upload is an object that is being written, in parts and in any order. It is
// invisible until Commit.
type Upload struct {
	bucket Writer
	key    string
	id     string
	size   int64
	part   int64
	cond   Condition
	counts counts
	sums   sums

	mu    sync.Mutex
	parts map[int]Part
	etag  string // after Commit
	plain bool   // it was written without a condition, which the store has not
	ended bool
}

// writerOf returns the bucket of a URL, if it can be written.
func writerOf(ctx context.Context, p string) (Writer, string, error) {
	b, key, err := BucketOf(ctx, p)
	if err != nil {
		return nil, "", err
	}
	w, ok := b.(Writer)
	if !ok {
		return nil, "", fmt.Errorf("write %s: %w: web servers are only read", Redact(p), errors.ErrUnsupported)
	}
	if key == "" {
		return nil, "", fmt.Errorf("write %s: want s3://BUCKET/KEY", p)
	}
	return w, key, nil
}

// Writable returns nil if an object can be written at a URL, as far as the URL tells.
func Writable(ctx context.Context, p string) error {
	_, _, err := writerOf(ctx, p)
	return err
}

// Create begins an upload of size bytes, and removes those of the same key that were
// abandoned. What is at the key now must still be there at Commit, so that of two
// uploads at the same time one fails, if the store has conditional writes. With fresh,
// there must be nothing.
func Create(ctx context.Context, p string, size int64, fresh bool) (*Upload, error) {
	w, key, err := writerOf(ctx, p)
	if err != nil {
		return nil, err
	}
	u := &Upload{bucket: w, key: key, size: size, part: PartSize(size), parts: map[int]Part{}}
	if u.cond, err = now(ctx, w, key, &u.counts); err != nil {
		return nil, err
	}
	if fresh && !u.cond.Nothing {
		return nil, fmt.Errorf("write %s: %w", w.URL(key), fs.ErrExist)
	}
	sweep(ctx, w, key, abandoned, &u.counts, func(k string) bool { return k == key })
	if size == 0 {
		return u, nil
	}
	return u, u.begin(ctx)
}

// beginGrace is how long the answer to the beginning of an upload is waited for after ctx
// has ended. Without its name an upload that the store has begun could not be removed.
const beginGrace = time.Second

func (u *Upload) begin(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(beginGrace, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(late, func() { t.Stop() })
	})
	defer stop()
	err := u.do(late, func(ctx context.Context) (err error) {
		u.id, err = u.bucket.Begin(ctx, u.key)
		return err
	})
	if cause := context.Cause(ctx); err == nil && cause != nil {
		return errors.Join(cause, u.Discard(ctx))
	}
	return err
}

// now is the condition that a key has what it has now.
func now(ctx context.Context, b Bucket, key string, c *counts) (Condition, error) {
	info, err := stat(ctx, b, key, c)
	switch {
	case IsNoObject(err):
		return Condition{Nothing: true}, nil
	case err != nil:
		return Condition{}, err
	}
	return Condition{ETag: info.ETag}, nil
}

// Current is the condition that what is at a URL now is still there.
func Current(ctx context.Context, p string) (Condition, error) {
	w, key, err := writerOf(ctx, p)
	if err != nil {
		return Condition{}, err
	}
	return now(ctx, w, key, new(counts))
}

// IsNoObject reports whether an error says that a bucket has no such object.
func IsNoObject(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return errors.Is(err, fs.ErrNotExist) && !(ok && e.Code == "NoSuchBucket")
}

func (u *Upload) do(ctx context.Context, request func(context.Context) error) error {
	return u.bucket.Pool().Do(ctx, u.counts.all(), request)
}

// Sweep removes uploads to URLs that begin with p and are older than age, which were
// abandoned. A store that cannot list uploads keeps them.
func Sweep(ctx context.Context, p string, age time.Duration) {
	if w, key, err := writerOf(ctx, p); err == nil {
		sweep(ctx, w, key, age, new(counts), func(k string) bool { return strings.HasPrefix(k, key) })
	}
}

func sweep(ctx context.Context, w Writer, prefix string, age time.Duration, c *counts, match func(key string) bool) {
	var list []Pending
	err := w.Pool().Ask(ctx, c.all(), func(ctx context.Context) (err error) {
		list, err = w.Pending(ctx, prefix)
		return err
	})
	if err != nil {
		return
	}
	for _, p := range list {
		if match(p.Key) && p.Age > age {
			_ = w.Pool().Do(ctx, c.all(), func(ctx context.Context) error { return w.Abort(ctx, p.Key, p.ID) })
		}
	}
}

// Part is the size of parts, except of the last.
func (u *Upload) Part() int64 { return u.part }

// Write sends the part that begins at off, a multiple of Part. It may be called from
// several goroutines, and must be called for every part.
func (u *Upload) Write(ctx context.Context, p []byte, off int64) error {
	if off%u.part != 0 || int64(len(p)) != min(u.part, u.size-off) {
		return fmt.Errorf("write %s: %d bytes at %d are no part of %d bytes", u.bucket.URL(u.key), len(p), off, u.size)
	}
	number := int(off/u.part) + 1
	if err := u.bucket.Pool().Pace(ctx, len(p)); err != nil {
		return err
	}
	var part Part
	err := u.do(ctx, func(ctx context.Context) (err error) {
		u.counts.Bytes.Add(int64(len(p)))
		part, err = u.bucket.PutPart(ctx, u.key, u.id, number, p)
		return err
	})
	if err != nil {
		return err
	}
	u.sums.add(off, int64(len(p)), part.CRC32C)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = part
	return nil
}

// Commit makes the object visible, all of it at once.
func (u *Upload) Commit(ctx context.Context) error {
	write := u.complete
	if u.size == 0 {
		write = u.putNothing
	}
	var err error
	u.plain, err = conditionally(ctx, u.bucket, u.key, u.cond, &u.counts, func(c Condition) error { return write(ctx, c) })
	if err == nil {
		u.end()
	}
	return err
}

// putNothing writes an object without bytes, which has no parts.
func (u *Upload) putNothing(ctx context.Context, c Condition) error {
	return u.do(ctx, func(ctx context.Context) (err error) {
		u.etag, err = u.bucket.Put(ctx, u.key, nil, c)
		return err
	})
}

// complete makes the object of its parts.
func (u *Upload) complete(ctx context.Context, c Condition) error {
	sum, ok := u.sums.whole(u.size)
	if !ok {
		return fmt.Errorf("write %s: not all parts were written", u.bucket.URL(u.key))
	}
	parts := make([]Part, len(u.parts))
	for n, p := range u.parts {
		parts[n-1] = p
	}
	attempt := 0
	return u.do(ctx, func(ctx context.Context) (err error) {
		attempt++
		u.etag, err = u.bucket.Complete(ctx, u.key, u.id, parts, sum, c)
		if attempt > 1 && err != nil && u.isThere(ctx, sum) {
			return nil // the answer to an attempt before was lost
		}
		return err
	})
}

// isThere reports whether the object at the key is the one of the upload.
func (u *Upload) isThere(ctx context.Context, sum uint32) bool {
	info, err := u.bucket.Stat(ctx, u.key)
	u.etag = info.ETag
	return err == nil && info.Size == u.size && info.Sum != nil && info.Sum.CRC32C == sum
}

// ETag is what the store calls the object after Commit; "" if it does not say so.
func (u *Upload) ETag() string { return u.etag }

func (u *Upload) end() (was bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was, u.ended = u.ended, true
	return was
}

// Discard removes the parts, unless Commit has succeeded.
func (u *Upload) Discard(ctx context.Context) error {
	if u.end() || u.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return u.do(ctx, func(ctx context.Context) error { return u.bucket.Abort(ctx, u.key, u.id) })
}

// TakeOrigin returns what requests did since the last call.
func (u *Upload) TakeOrigin() route.Origin {
	o := u.counts.take(u.bucket)
	o.Unconditional = u.plain
	return o
}

// Put writes a small object and returns its ETag. What is at the key must be as c says.
func Put(ctx context.Context, p string, data []byte, c Condition) (etag string, err error) {
	w, key, err := writerOf(ctx, p)
	if err != nil {
		return "", err
	}
	n := new(counts)
	_, err = conditionally(ctx, w, key, c, n, func(c Condition) error {
		attempt := 0
		return w.Pool().Do(ctx, n.all(), func(ctx context.Context) (err error) {
			attempt++
			etag, err = w.Put(ctx, key, data, c)
			if attempt > 1 && errors.Is(err, ErrChanged) {
				if tag, same := holds(ctx, w, key, data); same {
					etag, err = tag, nil // the answer to an attempt before was lost
				}
			}
			return err
		})
	})
	return etag, err
}

// conditionally writes to a key with a condition. If the store has no conditional writes,
// the key is looked at instead and written without: two writers that do so at the same
// moment overwrite each other, each as a whole.
func conditionally(ctx context.Context, w Writer, key string, c Condition, n *counts, write func(Condition) error) (plain bool, err error) {
	err = write(c)
	plain = c == (Condition{})
	if e, ok := errors.AsType[*Error](err); !ok || plain || !e.noConditions() {
		return plain, err
	}
	there, err := now(ctx, w, key, n)
	if err != nil {
		return false, err
	}
	if there != c {
		return false, &Error{Op: "write", Object: w.URL(key), Status: statusPreconditionFailed, Err: ErrChanged}
	}
	return true, write(Condition{})
}

// holds reports whether a small object has these bytes, and returns its ETag.
func holds(ctx context.Context, b Bucket, key string, data []byte) (etag string, same bool) {
	info, err := b.Stat(ctx, key)
	if err != nil || info.Size != int64(len(data)) {
		return "", false
	}
	body, err := b.Get(ctx, &info, 0, info.Size)
	if err != nil {
		return "", false
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	return info.ETag, err == nil && bytes.Equal(got, data)
}

// Remove removes an object, which need not exist.
func Remove(ctx context.Context, p string) error {
	w, key, err := writerOf(ctx, p)
	if err != nil {
		return err
	}
	return w.Pool().Do(ctx, new(counts).all(), func(ctx context.Context) error { return w.Delete(ctx, key) })
}
