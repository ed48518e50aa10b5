package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/client"
)

const checksumHeader = "X-Amz-Checksum-Crc32c"

// encodeSum is a checksum as headers have it.
func encodeSum(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// condition sets the headers of a conditional write.
func condition(h http.Header, c object.Condition) {
	switch {
	case c.Nothing:
		h.Set("If-None-Match", "*")
	case c.ETag != "":
		h.Set("If-Match", c.ETag)
	}
}

// call makes a request whose answer is small, and returns headers and body.
func (b *bucket) call(ctx context.Context, op string, r request, want ...int) (http.Header, []byte, error) {
	resp, err := b.do(ctx, op, r)
	if err != nil {
		return nil, nil, err
	}
	defer client.Discard(resp.Body)
	for _, status := range want {
		if resp.StatusCode == status {
			text, err := io.ReadAll(io.LimitReader(resp.Body, maxListing))
			if err != nil {
				return nil, nil, object.Failed(op, b.URL(r.key), err)
			}
			return resp.Header, text, nil
		}
	}
	return nil, nil, b.refused(op, r.key, resp)
}

// Put stores an object in one request and returns its ETag.
func (b *bucket) Put(ctx context.Context, key string, data []byte, c object.Condition) (string, error) {
	h := http.Header{}
	h.Set(checksumHeader, encodeSum(crc32c.Sum(data)))
	condition(h, c)
	if data == nil {
		data = []byte{}
	}
	answer, _, err := b.call(ctx, "write", request{method: http.MethodPut, key: key, header: h, body: data}, http.StatusOK)
	return quoted(answer.Get("ETag")), err
}

// Delete removes an object.
func (b *bucket) Delete(ctx context.Context, key string) error {
	_, _, err := b.call(ctx, "remove", request{method: http.MethodDelete, key: key}, http.StatusOK, http.StatusNoContent)
	return err
}

// Begin begins an upload in parts.
func (b *bucket) Begin(ctx context.Context, key string) (string, error) {
	h := http.Header{"X-Amz-Checksum-Algorithm": {"CRC32C"}, "X-Amz-Checksum-Type": {"FULL_OBJECT"}}
	_, text, err := b.call(ctx, "write", request{method: http.MethodPost, key: key, query: url.Values{"uploads": {""}}, header: h}, http.StatusOK)
	if err != nil {
		return "", err
	}
	var begun struct {
		XMLName xml.Name `xml:"InitiateMultipartUploadResult"`
		ID      string   `xml:"UploadId"`
	}
	if err := xml.Unmarshal(text, &begun); err != nil || begun.ID == "" {
		return "", object.Failed("write", b.URL(key), &object.ProtocolError{Detail: "the store did not say how the upload is called"})
	}
	return begun.ID, nil
}

// PutPart sends one part. The store compares its checksum.
func (b *bucket) PutPart(ctx context.Context, key, id string, number int, data []byte) (object.Part, error) {
	p := object.Part{Number: number, CRC32C: crc32c.Sum(data)}
	h := http.Header{}
	h.Set(checksumHeader, encodeSum(p.CRC32C))
	q := url.Values{"partNumber": {strconv.Itoa(number)}, "uploadId": {id}}
	answer, _, err := b.call(ctx, "write", request{method: http.MethodPut, key: key, query: q, header: h, body: data}, http.StatusOK)
	if err != nil {
		return p, err
	}
	if p.ETag = answer.Get("ETag"); p.ETag == "" {
		return p, object.Failed("write", b.URL(key), &object.ProtocolError{Detail: "the store did not say how the part is called"})
	}
	return p, nil
}

type completion struct {
	XMLName xml.Name        `xml:"CompleteMultipartUpload"`
	Space   string          `xml:"xmlns,attr"`
	Parts   []completedPart `xml:"Part"`
}

type completedPart struct {
	Number int    `xml:"PartNumber"`
	ETag   string `xml:"ETag"`
	Sum    string `xml:"ChecksumCRC32C"`
}

// Complete makes an object of its parts and returns its ETag. A store may answer 200 before it knows whether
// that worked, and say so in the body.
func (b *bucket) Complete(ctx context.Context, key, id string, parts []object.Part, sum uint32, c object.Condition) (etag string, err error) {
	list := completion{Space: "http://s3.amazonaws.com/doc/2006-03-01/"}
	for _, p := range parts {
		list.Parts = append(list.Parts, completedPart{p.Number, p.ETag, encodeSum(p.CRC32C)})
	}
	body, err := xml.Marshal(list)
	if err != nil {
		return "", err
	}
	h := http.Header{"X-Amz-Checksum-Type": {"FULL_OBJECT"}}
	h.Set(checksumHeader, encodeSum(sum))
	condition(h, c)
	_, text, err := b.call(ctx, "write", request{method: http.MethodPost, key: key, query: url.Values{"uploadId": {id}}, header: h, body: body}, http.StatusOK)
	if err != nil {
		return "", err
	}
	if x := parseError(text); x.Code != "" {
		return "", b.explained("write", key, &http.Response{StatusCode: lateStatus(x.Code)}, x)
	}
	var done struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string   `xml:"ETag"`
	}
	if err := xml.Unmarshal(text, &done); err != nil {
		return "", object.Failed("write", b.URL(key), &object.ProtocolError{Detail: "the store did not say that the object is complete"})
	}
	return quoted(done.ETag), nil
}

// lateStatus is the status that an error would have had if the store had known of it before
// it answered 200.
func lateStatus(code string) int {
	switch code {
	case "SlowDown", "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case "PreconditionFailed":
		return http.StatusPreconditionFailed
	}
	return http.StatusInternalServerError
}

// Abort removes the parts of an upload.
func (b *bucket) Abort(ctx context.Context, key, id string) error {
	_, _, err := b.call(ctx, "remove parts of", request{method: http.MethodDelete, key: key, query: url.Values{"uploadId": {id}}},
		http.StatusOK, http.StatusNoContent, http.StatusNotFound)
	return err
}

// Pending lists uploads that were not ended; of more than 1000, the first.
func (b *bucket) Pending(ctx context.Context, prefix string) ([]object.Pending, error) {
	h, text, err := b.call(ctx, "list uploads of", request{method: http.MethodGet, query: url.Values{"uploads": {""}, "prefix": {prefix}}}, http.StatusOK)
	if err != nil {
		return nil, err
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return parsePending(text, now)
}

// parsePending reads a list of uploads. now is the time by the clock that they have: that
// of this host may be wrong, and an upload of another host would seem to be abandoned.
func parsePending(text []byte, now time.Time) ([]object.Pending, error) {
	var l struct {
		XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		Uploads []struct {
			Key   string    `xml:"Key"`
			ID    string    `xml:"UploadId"`
			Begun time.Time `xml:"Initiated"`
		} `xml:"Upload"`
	}
	if err := xml.Unmarshal(text, &l); err != nil {
		return nil, &object.ProtocolError{Detail: "the list of uploads is not what S3 sends: " + printable(err.Error())}
	}
	var list []object.Pending
	for _, u := range l.Uploads {
		p := object.Pending{Key: u.Key, ID: u.ID}
		if !u.Begun.IsZero() { // not all stores say it
			p.Age = now.Sub(u.Begun)
		}
		list = append(list, p)
	}
	return list, nil
}
