package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/client"
)

const maxListing = 16 << 20 // bytes of one page, which has 1000 objects

type listing struct {
	XMLName   xml.Name `xml:"ListBucketResult"`
	Encoding  string   `xml:"EncodingType"`
	Truncated bool     `xml:"IsTruncated"`
	Next      string   `xml:"NextContinuationToken"`
	Contents  []struct {
		Key      string    `xml:"Key"`
		Size     int64     `xml:"Size"`
		ETag     string    `xml:"ETag"`
		Modified time.Time `xml:"LastModified"`
	} `xml:"Contents"`
	Dirs []struct {
		Prefix string `xml:"Prefix"`
	} `xml:"CommonPrefixes"`
}

// key is a key of the listing as it is.
func (l *listing) key(s string) string {
	if l.Encoding == "url" {
		s, _ = url.QueryUnescape(s)
	}
	return s
}

// quoted is an ETag as headers have it. Some stores list and answer without the quotes.
func quoted(etag string) string {
	if etag == "" || strings.HasSuffix(etag, `"`) {
		return etag
	}
	return `"` + etag + `"`
}

// parseListing reads one page of what is below a prefix. A page that is to be followed by
// itself is an error, because the listing would never end.
func parseListing(text []byte, prefix, token string) ([]object.Info, string, error) {
	var l listing
	if err := xml.Unmarshal(text, &l); err != nil {
		return nil, "", &object.ProtocolError{Detail: "the listing is not what S3 sends: " + printable(err.Error())}
	}
	var list []object.Info
	for _, c := range l.Contents {
		key := l.key(c.Key)
		if key == "" || c.Size < 0 || !strings.HasPrefix(key, prefix) {
			return nil, "", &object.ProtocolError{Detail: fmt.Sprintf("the listing of %q has the key %q with %d bytes", printable(prefix), printable(c.Key), c.Size)}
		}
		list = append(list, object.Info{Key: key, Size: c.Size, ETag: quoted(c.ETag), Modified: c.Modified})
	}
	for _, d := range l.Dirs {
		if key := l.key(d.Prefix); strings.HasSuffix(key, "/") && strings.HasPrefix(key, prefix) {
			list = append(list, object.Info{Key: key})
		}
	}
	if !l.Truncated {
		return list, "", nil
	}
	if l.Next == "" || l.Next == token {
		return nil, "", &object.ProtocolError{Detail: "the listing is truncated and does not say how to go on"}
	}
	return list, l.Next, nil
}

// List asks for a page.
func (b *bucket) List(ctx context.Context, prefix, token string, deep bool) ([]object.Info, string, error) {
	q := url.Values{"list-type": {"2"}, "prefix": {prefix}, "encoding-type": {"url"}}
	if !deep {
		q.Set("delimiter", "/")
	}
	if token != "" {
		q.Set("continuation-token", token)
	}
	resp, err := b.do(ctx, "list", request{method: http.MethodGet, query: q})
	if err != nil {
		return nil, "", err
	}
	defer client.Discard(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return nil, "", b.refused("list", prefix, resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxListing))
	if err != nil {
		return nil, "", object.Failed("list", b.URL(prefix), err)
	}
	list, next, err := parseListing(text, prefix, token)
	if err != nil {
		return nil, "", object.Failed("list", b.URL(prefix), err)
	}
	return list, next, nil
}
