package s3

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/fetch"
)

// Memory that was lent to a request is not read after the request, however early the
// store answered: its owner may have freed it.
func TestBodyAfterRequest(t *testing.T) {
	var sent io.Reader
	early := roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = r.Body
		w := httptest.NewRecorder()
		w.WriteHeader(http.StatusServiceUnavailable)
		return w.Result(), nil
	})
	b, err := newBucket("bucket", settings{endpoint: "http://store", anonymous: true}, fetch.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b.http = &http.Client{Transport: early}
	if _, err := b.Put(t.Context(), "key", []byte("data"), object.Condition{}); err == nil {
		t.Fatal("no error")
	}
	if n, err := sent.Read(make([]byte, 4)); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after an early answer: %d bytes, %v", n, err)
	}
	cut := errors.New("cut")
	b.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = r.Body
		return nil, cut
	})
	if _, err := b.Put(t.Context(), "key", []byte("data"), object.Condition{}); !errors.Is(err, cut) {
		t.Fatal(err)
	}
	if n, err := sent.Read(make([]byte, 4)); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after a cut connection: %d bytes, %v", n, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
