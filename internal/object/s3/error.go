package s3

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/client"
)

// maxError limits the body of an error, and maxText what of it is printed.
const (
	maxError = 64 << 10
	maxText  = 200
)

// A xmlError is the body of an answer that is an error.
type xmlError struct {
	XMLName xml.Name `xml:"Error"`
	Code    string   `xml:"Code"`
	Message string   `xml:"Message"`
}

// parseError reads the body of an error; the zero value if it is none.
func parseError(text []byte) (e xmlError) {
	if xml.Unmarshal(text, &e) != nil {
		return xmlError{}
	}
	e.Code, e.Message = printable(e.Code), printable(e.Message)
	return e
}

// printable is text of a store, which may be anything, for a message.
func printable(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	clean := fmt.Sprintf("%q", s)
	return clean[1 : len(clean)-1]
}

// refused is the error of an answer that is none of the wanted ones, as a sentence.
func (b *bucket) refused(op, key string, resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	return b.explained(op, key, resp, parseError(text))
}

func (b *bucket) explained(op, key string, resp *http.Response, x xmlError) error {
	e := &object.Error{Op: op, Object: b.URL(key), Status: resp.StatusCode, Code: x.Code, After: client.RetryAfter(resp.Header)}
	if known, ok := sentences[x.Code]; ok {
		e.Detail, e.Fix, e.Denied, e.Again = known.detail, known.fix, credentialCodes[x.Code], arrivalCodes[x.Code]
		switch x.Code {
		case "NoSuchBucket":
			e.Detail = fmt.Sprintf("there is no bucket %s at %s", b.name, b.place())
		case "InvalidBucketName":
			e.Detail = fmt.Sprintf("%q is not a name of a bucket", b.name)
		case "ExpiredToken", "TokenRefreshRequired", "InvalidToken":
			e.Again = b.refreshed(resp.Request)
		case "RequestTimeTooSkewed":
			e.Again = b.setClock(resp)
		}
		return e
	}
	switch e.Detail = x.Message; {
	case resp.StatusCode == http.StatusPreconditionFailed:
		e.Err = object.ErrChanged
	case e.Detail != "":
	case resp.StatusCode == http.StatusNotFound:
		e.Detail = sentences["NoSuchKey"].detail
	case resp.StatusCode == http.StatusForbidden:
		e.Detail, e.Fix = sentences["AccessDenied"].detail, sentences["AccessDenied"].fix
	case resp.StatusCode == http.StatusServiceUnavailable:
		e.Detail = sentences["SlowDown"].detail
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		e.Detail, e.Fix = sentences["PermanentRedirect"].detail, sentences["PermanentRedirect"].fix
	default:
		e.Detail = fmt.Sprintf("the store answered %q", http.StatusText(resp.StatusCode))
	}
	client.ByProxy(e, resp)
	return e
}

// credentialCodes mean that the store rejects the credentials. versitygw answers 404 to
// an unknown access key, which by its status is an object that does not exist.
var credentialCodes = map[string]bool{
	"AccessDenied": true, "InvalidAccessKeyId": true, "XAdminUserNotFound": true, "SignatureDoesNotMatch": true,
	"ExpiredToken": true, "TokenRefreshRequired": true, "InvalidToken": true,
}

// arrivalCodes mean that a body did not arrive as it was sent. It is sent again.
var arrivalCodes = map[string]bool{
	"BadDigest": true, "XAmzContentChecksumMismatch": true, "IncompleteBody": true, "RequestTimeout": true,
}

// An unknownKey is one code of AWS, and another of versitygw.
var unknownKey = sentence{"the store does not know the access key", "check AWS_ACCESS_KEY_ID or AWS_PROFILE, and AWS_ENDPOINT_URL"}

var damaged = sentence{"the bytes that arrived at the store have another checksum", ""}

type sentence struct{ detail, fix string }

// sentences say what the codes of S3 mean for a user.
var sentences = map[string]sentence{
	"NoSuchBucket":          {"there is no such bucket", "check the name, AWS_ENDPOINT_URL and AWS_REGION"},
	"InvalidBucketName":     {"this is not a name of a bucket", "names have 3 to 63 lower-case letters, digits, dots and hyphens"},
	"NoSuchKey":             {"there is no such object", ""},
	"NoSuchUpload":          {"the upload has ended: its parts were removed, or the answer that it is complete was lost", "save again"},
	"AccessDenied":          {"the credentials do not permit it", "check the policy of the bucket, or AWS_PROFILE"},
	"InvalidAccessKeyId":    unknownKey,
	"XAdminUserNotFound":    unknownKey,
	"SignatureDoesNotMatch": {"the secret key does not belong to the access key", "check AWS_SECRET_ACCESS_KEY or the profile"},
	"ExpiredToken":          {"the session token has expired", "sign in again (aws sso login), or get a new token"},
	"TokenRefreshRequired":  {"the session token has expired", "sign in again (aws sso login), or get a new token"},
	"InvalidToken":          {"the session token is not valid", "unset AWS_SESSION_TOKEN, or get a new token"},
	"RequestTimeTooSkewed":  {"the clock of this host differs from the store's by more than 15 minutes", "set the clock"},
	"SlowDown":              {"the store has too much to do", ""},
	"PermanentRedirect":     {"the bucket is at another endpoint or in another region", "set AWS_REGION or AWS_ENDPOINT_URL"},
	"PreconditionFailed":    {"the object is not the one that was expected", ""},
	"EntityTooLarge":        {"the object is larger than the store allows", ""},

	"ConditionalRequestConflict":  {"another write of the object is in progress", "write it again"},
	"BadDigest":                   damaged,
	"XAmzContentChecksumMismatch": damaged,
	"IncompleteBody":              {"not all bytes arrived at the store", ""},
	"RequestTimeout":              {"the bytes arrived at the store too slowly", ""},
}
