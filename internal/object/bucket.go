package object

import (
	"context"
	"io"
	"time"

	"github.com/culvert-io/culvert/internal/object/fetch"
)

// An Info is what a store says of an object.
type Info struct {
	Key      string
	Name     string // of a listing: the key below the URL that was listed
	Size     int64
	ETag     string // changes with the contents; "" if the store has none
	Modified time.Time
	Sum      *Sum // of all bytes; nil if the store has none that Culvert knows
}

// A Sum is a checksum of a whole object.
type Sum struct {
	Algorithm string // "crc32c"
	CRC32C    uint32
}

// A Bucket is a bucket of a store, or a web server. Its methods make one request each
// and do not repeat it; their errors are of type *Error.
type Bucket interface {
	// Store names it in receipts: scheme and endpoint, without secrets.
	Store() string
	// URL names an object of it in messages, without secrets.
	URL(key string) string
	// Pool is shared by all that is read from the bucket.
	Pool() *fetch.Pool
	Stat(ctx context.Context, key string) (Info, error)
	// Get asks for n bytes from off of the object that info describes, and no other
	// version of it. The body has exactly these bytes, or fails.
	Get(ctx context.Context, info *Info, off, n int64) (Body, error)
}

// A Body is the answer to a read.
type Body struct {
	io.ReadCloser
	Sum *Sum // of the whole object, if the answer has one; listings have none
}

// A Lister is a Bucket that can list its objects.
type Lister interface {
	// List returns objects whose keys begin with prefix. Unless deep, those behind a
	// further slash are one Info, whose key ends with that slash. It returns one page,
	// and the name of the next, which is "" after the last. The first has the name "".
	List(ctx context.Context, prefix, page string, deep bool) (list []Info, next string, err error)
}
