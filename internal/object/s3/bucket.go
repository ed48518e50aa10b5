// Package s3 is the client of S3 and of stores that speak its protocol. Credentials,
// regions and profiles are found as the tools of AWS find them, by its SDK, which also
// signs; the requests themselves are made here, so that bodies are read straight into
// the caller's memory and the scheduler of package fetch decides what is repeated.
package s3

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/client"
	"github.com/culvert-io/culvert/internal/object/fetch"
)

// A bucket is a bucket of a store.
type bucket struct {
	name string
	set  settings
	http *http.Client
	pool *fetch.Pool

	mu          sync.Mutex
	region      string                  // changes when the store says that it is another
	credentials aws.CredentialsProvider // change when the store says that they have expired
	skew        time.Duration           // by which the clock of the store is ahead
}

// Open is the provider of s3://.
func Open(ctx context.Context, u *url.URL) (object.Bucket, error) {
	limits, err := client.Limits()
	if err != nil {
		return nil, err
	}
	set, err := fromEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	return newBucket(u.Host, set, limits)
}

func newBucket(name string, set settings, limits fetch.Config) (*bucket, error) {
	b := &bucket{name: name, set: set, region: set.region, credentials: set.credentials, pool: fetch.New(limits)}
	var err error
	b.http, err = client.New(b.pool, false) // a redirect needs another signature
	if err == nil && set.roots != nil {
		b.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: set.roots, MinVersion: tls.VersionTLS12}
	}
	return b, err
}

func (b *bucket) Store() string         { return "s3+" + b.place() }
func (b *bucket) Pool() *fetch.Pool     { return b.pool }
func (b *bucket) URL(key string) string { return "s3://" + b.name + "/" + key }

// endpoint is the URL of the store, without the bucket.
func (b *bucket) endpoint(region string) string {
	if b.set.endpoint != "" {
		return b.set.endpoint
	}
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	return "https://" + cmp.Or(b.set.service, "s3") + "." + region + domain
}

// place names the store without a user name and a password, which an endpoint may have.
func (b *bucket) place() string { return object.Redact(b.endpoint(b.currentRegion())) }

func (b *bucket) currentRegion() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.region
}

func (b *bucket) setRegion(region string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.region = region
}

// address is the URL of a key, or of the bucket if the key is empty. Stores of others
// have the bucket in the path; AWS has it in the host, unless dots in its name would
// not fit its certificate.
func (b *bucket) address(region, key string, query url.Values) (*url.URL, error) {
	u, err := url.Parse(b.endpoint(region))
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the endpoint %q is not a URL", object.Redact(b.endpoint(region)))
	}
	base := strings.TrimSuffix(u.Path, "/")
	if b.set.pathStyle || b.set.endpoint != "" && !b.set.hostStyle || strings.Contains(b.name, ".") {
		base += "/" + b.name
	} else {
		u.Host = b.name + "." + u.Host
	}
	u.Path, u.RawPath = base+"/"+key, escape(base+"/"+key)
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // as signatures want it
	return u, nil
}

// escape escapes a path as signatures want it: all but letters, digits and -._~/
func escape(path string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/"
	var b strings.Builder
	for _, c := range []byte(path) {
		if strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Stat asks for the headers of an object. An answer to HEAD has no body that says what
// is wrong, so that a failure is asked for again by GET.
func (b *bucket) Stat(ctx context.Context, key string) (object.Info, error) {
	info := object.Info{Key: key}
	checksums := http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}
	resp, err := b.do(ctx, "open", request{method: http.MethodHead, key: key, header: checksums})
	if err != nil {
		return info, err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return info, b.explain(ctx, key, resp)
	}
	if resp.ContentLength < 0 {
		return info, object.Failed("open", b.URL(key), &object.ProtocolError{Detail: "the store does not say how long it is"})
	}
	info.Size, info.ETag, info.Modified = resp.ContentLength, quoted(resp.Header.Get("ETag")), client.Modified(resp.Header)
	info.Sum = checksum(resp.Header)
	return info, nil
}

// explain finds out why HEAD failed.
func (b *bucket) explain(ctx context.Context, key string, head *http.Response) error {
	resp, err := b.do(ctx, "open", request{method: http.MethodGet, key: key, header: http.Header{"Range": {"bytes=0-0"}}})
	if err != nil {
		return err
	}
	defer client.Discard(resp.Body)
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		resp = head // it works now
	}
	return b.refused("open", key, resp)
}

// checksum is the CRC-32C of a whole object, if the store has it. One of a multipart
// upload with "-" and a number is a sum of sums.
func checksum(h http.Header) *object.Sum {
	raw, err := base64.StdEncoding.DecodeString(h.Get("X-Amz-Checksum-Crc32c"))
	if err != nil || len(raw) != 4 || h.Get("X-Amz-Checksum-Type") == "COMPOSITE" {
		return nil
	}
	return &object.Sum{Algorithm: "crc32c", CRC32C: binary.BigEndian.Uint32(raw)}
}

// Get asks for a range. Only an answer that has all bytes has their checksum, so one
// that is not known yet is asked for without a range.
func (b *bucket) Get(ctx context.Context, info *object.Info, off, n int64) (object.Body, error) {
	h := http.Header{}
	client.AskRange(h, info, off, n)
	if off == 0 && n == info.Size && info.Sum == nil {
		h.Del("Range")
		h.Set("X-Amz-Checksum-Mode", "ENABLED")
	}
	resp, err := b.do(ctx, "read", request{method: http.MethodGet, key: info.Key, header: h})
	if err != nil {
		return object.Body{}, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		defer client.Discard(resp.Body)
		return object.Body{}, b.refused("read", info.Key, resp)
	}
	if err := client.CheckRange(resp, info, off, n); err != nil {
		_ = resp.Body.Close()
		return object.Body{}, object.Failed("read", b.URL(info.Key), err)
	}
	body := object.Body{ReadCloser: resp.Body}
	if h.Get("Range") == "" {
		body.Sum = checksum(resp.Header)
	}
	return body, nil
}
