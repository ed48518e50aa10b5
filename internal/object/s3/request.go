package s3

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/client"
)

const (
	// emptyHash is the SHA-256 of nothing.
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	// unsigned says that the body is not part of the signature. Bodies have a CRC-32C
	// instead, which is ten times as fast.
	unsigned = "UNSIGNED-PAYLOAD"
)

// A request is one call of the protocol.
type request struct {
	method string
	key    string
	query  url.Values
	header http.Header
	body   []byte // nil for none
}

// do makes a request. If the store says that the bucket is in another region, it makes
// it there.
func (b *bucket) do(ctx context.Context, op string, r request) (*http.Response, error) {
	asked := b.currentRegion()
	resp, err := b.once(ctx, op, r, asked)
	if err != nil {
		return nil, err
	}
	// Not the present region: another request may have changed it meanwhile.
	if region := resp.Header.Get("X-Amz-Bucket-Region"); region != "" && resp.StatusCode >= 300 && region != asked {
		client.Discard(resp.Body)
		b.setRegion(region)
		return b.once(ctx, op, r, region)
	}
	return resp, nil
}

func (b *bucket) once(ctx context.Context, op string, r request, region string) (*http.Response, error) {
	fail := func(err error) error { return object.Failed(op, b.URL(r.key), err) }
	u, err := b.address(region, r.key, r.query)
	if err != nil {
		return nil, fail(&object.Error{Final: true, Err: err, Fix: "check AWS_ENDPOINT_URL"})
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), nil)
	if err != nil {
		return nil, fail(&object.Error{Final: true, Err: err})
	}
	req.URL = u
	for k, v := range r.header {
		req.Header[k] = v
	}
	hash, body := emptyHash, lend(r.body)
	if r.body != nil {
		req.Body, req.ContentLength, hash = body, int64(len(r.body)), unsigned
		if len(r.body) == 0 {
			req.Body = http.NoBody // another body would have an unknown length
		}
	}
	if err := b.sign(ctx, req, hash, region, b.now()); err != nil {
		return nil, fail(err)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		body.giveBack()
		return nil, fail(client.Cause(ctx, err))
	}
	resp.Body = answer{resp.Body, body}
	return resp, nil
}

// Paths are escaped once: keys may have any characters.
var signer = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })

// sign signs a request, unless nobody is to be named.
func (b *bucket) sign(ctx context.Context, req *http.Request, hash, region string, now time.Time) error {
	if b.set.anonymous {
		return nil
	}
	creds, err := b.provider().Retrieve(ctx)
	if err != nil {
		return &object.Error{
			Final: context.Cause(ctx) == nil, Detail: "no credentials were found", Err: innermost(err),
			Fix: "aws configure, AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; " + anonymousVariable + "=1 for public buckets",
		}
	}
	req.Header.Set("X-Amz-Content-Sha256", hash)
	return signer.SignHTTP(ctx, creds, req, hash, "s3", region, now)
}

// innermost is the last cause of an error of the SDK, which says the same thing several
// times.
func innermost(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}
