package object

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	Begun   time.Time
}

// A Writer is a Bucket that can be written. An upload is invisible until it is
// complete.
type Writer interface {
	Bucket
	Put(ctx context.Context, key string, data []byte, c Condition) error
	Delete(ctx context.Context, key string) error
	Begin(ctx context.Context, key string) (id string, err error)
	PutPart(ctx context.Context, key, id string, number int, data []byte) (Part, error)
	Complete(ctx context.Context, key, id string, parts []Part, sum uint32, c Condition) error
	Abort(ctx context.Context, key, id string) error
	// Pending lists uploads of a key.
	Pending(ctx context.Context, key string) ([]Pending, error)
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

// Create begins an upload of size bytes, and removes those of the same key that were
// abandoned. What is at the key now must still be there at Commit, so that of two
// uploads at the same time one fails, if the store has conditional writes.
func Create(ctx context.Context, p string, size int64) (*Upload, error) {
	w, key, err := writerOf(ctx, p)
	if err != nil {
		return nil, err
	}
	u := &Upload{bucket: w, key: key, size: size, part: PartSize(size), parts: map[int]Part{}}
	if u.cond, err = now(ctx, w, key, &u.counts); err != nil {
		return nil, err
	}
	u.sweep(ctx)
	if size == 0 {
		return u, nil
	}
	return u, u.do(ctx, func(ctx context.Context) (err error) {
		u.id, err = w.Begin(ctx, key)
		return err
	})
}

// now is the condition that a key has what it has now.
func now(ctx context.Context, b Bucket, key string, c *counts) (Condition, error) {
	info, err := stat(ctx, b, key, c)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isNoBucket(err):
		return Condition{Nothing: true}, nil
	case err != nil:
		return Condition{}, err
	}
	return Condition{ETag: info.ETag}, nil
}

func isNoBucket(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == "NoSuchBucket"
}

func (u *Upload) do(ctx context.Context, request func(context.Context) error) error {
	return u.bucket.Pool().Do(ctx, u.counts.all(), request)
}

// sweep removes uploads that were abandoned. A store that cannot list them keeps them.
func (u *Upload) sweep(ctx context.Context) {
	var list []Pending
	err := u.do(ctx, func(ctx context.Context) (err error) {
		list, err = u.bucket.Pending(ctx, u.key)
		return err
	})
	if err != nil {
		return
	}
	for _, p := range list {
		if p.Key == u.key && time.Since(p.Begun) > abandoned {
			_ = u.do(ctx, func(ctx context.Context) error { return u.bucket.Abort(ctx, p.Key, p.ID) })
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
	var part Part
	err := u.do(ctx, func(ctx context.Context) (err error) {
		u.counts.Bytes.Add(int64(len(p)))
		part, err = u.bucket.PutPart(ctx, u.key, u.id, number, p)
		return err
	})
	if err != nil {
		return err
	}
	u.sums.addSum(off, int64(len(p)), part.CRC32C)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = part
	return nil
}

// Commit makes the object visible, all of it at once.
func (u *Upload) Commit(ctx context.Context) error {
	if u.size == 0 {
		u.end()
		return u.do(ctx, func(ctx context.Context) error { return u.bucket.Put(ctx, u.key, nil, u.cond) })
	}
	sum, ok := u.sums.whole(u.size)
	if !ok {
		return fmt.Errorf("write %s: not all parts were written", u.bucket.URL(u.key))
	}
	parts := make([]Part, len(u.parts))
	for n, p := range u.parts {
		parts[n-1] = p
	}
	attempt := 0
	err := u.do(ctx, func(ctx context.Context) error {
		attempt++
		err := u.bucket.Complete(ctx, u.key, u.id, parts, sum, u.cond)
		if attempt > 1 && err != nil && u.isThere(ctx, sum) {
			return nil // the answer to an attempt before was lost
		}
		return err
	})
	if err == nil {
		u.end()
	}
	return err
}

// isThere reports whether the object at the key is the one of the upload.
func (u *Upload) isThere(ctx context.Context, sum uint32) bool {
	info, err := u.bucket.Stat(ctx, u.key)
	return err == nil && info.Size == u.size && info.Sum != nil && info.Sum.CRC32C == sum
}

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
	return u.bucket.Abort(ctx, u.key, u.id)
}

// TakeOrigin returns what requests did since the last call.
func (u *Upload) TakeOrigin() route.Origin { return u.counts.take(u.bucket) }

// Put writes a small object. What is at the key must be as c says.
func Put(ctx context.Context, p string, data []byte, c Condition) error {
	w, key, err := writerOf(ctx, p)
	if err != nil {
		return err
	}
	return w.Pool().Do(ctx, new(counts).all(), func(ctx context.Context) error { return w.Put(ctx, key, data, c) })
}

// Remove removes an object, which need not exist.
func Remove(ctx context.Context, p string) error {
	w, key, err := writerOf(ctx, p)
	if err != nil {
		return err
	}
	return w.Pool().Do(ctx, new(counts).all(), func(ctx context.Context) error { return w.Delete(ctx, key) })
}
