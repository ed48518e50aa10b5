package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/object/fetch"
	"github.com/culvert-io/culvert/route"
)

// ErrChanged means that an object is no longer the one that was opened.
var ErrChanged = errors.New("the object was replaced while it was read")

// counts are what an object's requests did since they were last taken.
type counts struct{ fetch.Counts }

func (c *counts) all() *fetch.Counts { return &c.Counts }

func (c *counts) take(b Bucket) route.Origin {
	return route.Origin{
		Store: b.Store(), Bytes: c.Bytes.Swap(0), Requests: c.Requests.Swap(0),
		Retries: c.Retries.Swap(0), Hedges: c.Hedges.Swap(0), Connections: b.Pool().TakeConnections(),
	}
}

// A File is an open object. It is safe for concurrent use.
type File struct {
	bucket Bucket
	info   Info
	url    string // as it was opened
	listed bool   // the store was not asked for its checksum
	ctx    context.Context
	cancel context.CancelFunc
	counts counts
	sum    atomic.Pointer[Sum] // of the store, once it is known
	sums   sums
	closed atomic.Bool

	mu     sync.Mutex
	failed error // of a checksum
}

// Open opens an object. Ending ctx ends its requests.
func Open(ctx context.Context, p string) (*File, error) {
	b, key, err := BucketOf(ctx, p)
	if err != nil {
		return nil, err
	}
	return OpenIn(ctx, b, key, p)
}

// OpenIn opens an object of a bucket. url is its name for Path.
func OpenIn(ctx context.Context, b Bucket, key, url string) (*File, error) {
	f := &File{bucket: b, url: url}
	f.ctx, f.cancel = context.WithCancel(ctx)
	var err error
	if f.info, err = stat(f.ctx, b, key, &f.counts); err != nil {
		f.cancel()
		return nil, err
	}
	f.sum.Store(f.info.Sum)
	return f, nil
}

// OpenListed opens an object that a listing has, without asking the store for it again.
func OpenListed(ctx context.Context, url string, info Info) (*File, error) {
	b, _, err := BucketOf(ctx, url)
	if err != nil {
		return nil, err
	}
	f := &File{bucket: b, url: url, info: info, listed: true}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f, nil
}

// Name is what messages and statistics call it.
func (f *File) Name() string { return f.bucket.URL(f.info.Key) }

// Path is the URL that it was opened by, with its query.
func (f *File) Path() string { return f.url }

// Info is what the store said when it was opened.
func (f *File) Info() Info { return f.info }

// Size is the number of bytes.
func (f *File) Size() (int64, error) { return f.info.Size, nil }

// ReadAt fills p by range requests. It returns io.EOF where the object ends before.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	if off >= f.info.Size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), f.info.Size-off))
	if n == 0 {
		return 0, nil
	}
	r := fetch.Range{Open: f.get, Buf: p[:n], Off: off, Counts: f.counts.all()}
	r.InOne = f.listed && int64(n) == f.info.Size // only a whole answer has a checksum
	var sum uint32
	if r.InOne || f.sum.Load() != nil && f.sums.wants(off, int64(n)) {
		r.Sum = &sum
	}
	if err := f.bucket.Pool().Read(f.ctx, r); err != nil {
		return 0, err
	}
	if r.Sum != nil {
		f.sums.add(off, int64(n), sum)
	}
	if err := f.compare(); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *File) get(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	body, err := f.bucket.Get(ctx, &f.info, off, n)
	if err != nil {
		return nil, err
	}
	if body.Sum != nil {
		f.sum.Store(body.Sum)
	}
	return body.ReadCloser, nil
}

// Get fills p by one request that is neither repeated nor counted nor compared with a
// checksum: what a program does that only reads.
func (f *File) Get(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), f.info.Size-off)
	if off < 0 || n <= 0 {
		return 0, io.EOF
	}
	body, err := f.bucket.Get(f.ctx, &f.info, off, n)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	got, err := io.ReadFull(body, p[:n])
	if err == nil {
		_, _ = body.Read(make([]byte, 1)) // the end: the connection is used again
	}
	return got, err
}

// Store names the store in receipts.
func (f *File) Store() string { return f.bucket.Store() }

// compare compares the checksum, if all bytes were read.
func (f *File) compare() error {
	sum := f.sum.Load()
	if sum == nil {
		return nil
	}
	got, ok := f.sums.whole(f.info.Size)
	if !ok || got == sum.CRC32C {
		return nil
	}
	err := fmt.Errorf("read %s: the store says CRC-32C %08x, the bytes that arrived have %08x", f.Name(), sum.CRC32C, got)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
	return err
}

// CheckRest reads what of the object was not read, if it is at most limit bytes, so
// that the checksum of the store can be compared. An object of which nothing was read
// is left alone.
func (f *File) CheckRest(limit int64) error {
	if f.sum.Load() == nil || f.ctx.Err() != nil {
		return nil
	}
	missing := f.sums.missing(f.info.Size)
	var n int64
	for _, m := range missing {
		n += m.n
	}
	if n > limit || n == f.info.Size {
		return nil
	}
	for _, m := range missing {
		if _, err := f.ReadAt(make([]byte, m.n), m.off); err != nil {
			return err
		}
	}
	return nil
}

// Checked reports whether all bytes were read and have the checksum of the store.
func (f *File) Checked() bool {
	sum := f.sum.Load()
	if sum == nil {
		return false
	}
	got, ok := f.sums.whole(f.info.Size)
	return ok && got == sum.CRC32C
}

// WriteAt fails: objects are written as a whole.
func (f *File) WriteAt([]byte, int64) (int, error) { return 0, unix.EROFS }

// TakeOrigin returns what requests did since the last call. The sum over all receipts
// of an object is exact; a single one may have what a neighbour's requests did.
func (f *File) TakeOrigin() route.Origin {
	o := f.counts.take(f.bucket)
	if f.Checked() {
		o.Checksum = f.sum.Load().Algorithm
	}
	return o
}

// Abort ends the requests in flight and all later ones.
func (f *File) Abort() { f.cancel() }

// Close ends the use. It fails if all bytes were read and have another checksum than
// the store says.
func (f *File) Close() error {
	f.cancel()
	if f.closed.Swap(true) {
		return fs.ErrClosed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Stat is the object as a file.
func (f *File) Stat() (fs.FileInfo, error) { return f.info.FileInfo(), nil }

// FileInfo is the object as a file. Its Sys is the ETag.
func (i Info) FileInfo() fs.FileInfo { return fileInfo{i} }

type fileInfo struct{ i Info }

func (s fileInfo) Name() string       { return Base(s.i.Key) }
func (s fileInfo) Size() int64        { return s.i.Size }
func (s fileInfo) Mode() fs.FileMode  { return 0o444 }
func (s fileInfo) ModTime() time.Time { return s.i.Modified }
func (s fileInfo) IsDir() bool        { return false }
func (s fileInfo) Sys() any           { return s.i.ETag }
