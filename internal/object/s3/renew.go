package s3

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// provider gives the credentials of requests.
func (b *bucket) provider() aws.CredentialsProvider {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.credentials
}

// refreshed looks for credentials again, as at the start of the process, because those of
// a request have expired: a program may have written new ones to the files of AWS. It
// reports whether there are others than those of the request.
func (b *bucket) refreshed(req *http.Request) bool {
	if req == nil || b.set.reload == nil {
		return false
	}
	now, err := b.set.reload(req.Context())
	if err != nil {
		return false
	}
	found, err := now.Retrieve(req.Context())
	if err != nil || found.SessionToken == req.Header.Get("X-Amz-Security-Token") {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credentials = now
	return true
}

// now is the time that requests are signed with.
func (b *bucket) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.skew)
}

// setClock makes the clock of the store that of signatures, as the tools of AWS do. It
// reports whether the request was signed by another: not whether another is set now, since
// requests in flight together find the same.
func (b *bucket) setClock(resp *http.Response) bool {
	there, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || resp.Request == nil {
		return false
	}
	signed, err := time.Parse("20060102T150405Z", resp.Request.Header.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skew = time.Until(there)
	return there.Sub(signed).Abs() > time.Minute
}
