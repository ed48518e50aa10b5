package client

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/object/fetch"
)

func TestBatch(t *testing.T) {
	const fast, slow = 1e9, 1e6
	for _, c := range []struct {
		n    int
		rate float64
		want int
	}{
		{1 << 20, 0, 1}, // nothing is known
		{1 << 20, fast, maxBatch},
		{100 << 10, fast, 100 << 10},
		{10 << 10, fast, 10 << 10}, // the end of a body
		{1 << 20, 20e6, 80_000},
		{1 << 20, slow, 1}, // 4 KB in batchTime: not worth a call
	} {
		if got := batch(c.n, c.rate); got != c.want {
			t.Errorf("%d bytes at %.0f bytes/s: wait for %d, not %d", c.n, c.rate, got, c.want)
		}
	}
}

// A read of a body waits for many bytes, and one of a head for the first. What may be TLS
// always waits for the first.
func TestBodyConn(t *testing.T) {
	for first, plain := range map[string]bool{
		"GET / HTTP/1.1\r\n": true, "HEAD / HTTP/1.1\r\n": true,
		"CONNECT host:443 HTTP/1.1\r\n": false, "\x16\x03\x01": false, "\x05\x01\x00": false,
	} {
		c, far := dialled(t)
		if _, err := c.Write([]byte(first)); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write(make([]byte, 300)); err != nil {
			t.Fatal(err)
		}
		c.rate = 1e9
		read := func(n, want int) {
			t.Helper()
			if _, err := c.Read(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			if !plain {
				want = 1
			}
			if got := leastOf(t, c); got != want {
				t.Errorf("%q: a read of %d bytes waits for %d, not %d", first, n, got, want)
			}
		}
		read(1, 1)
		read(100<<10, 100<<10)
		if _, err := far.Write(make([]byte, 300)); err != nil {
			t.Fatal(err)
		}
		read(headBytes, 1)
	}
}

func dialled(t *testing.T) (*bodyConn, net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); far.Close() })
	return &bodyConn{TCPConn: c.(*net.TCPConn), least: 1}, far
}

func leastOf(t *testing.T, c *bodyConn) (n int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Bodies arrive whole, in pieces of any size, and a connection that is cut in the middle
// ends the read.
func TestBodiesInBatches(t *testing.T) {
	const size = 3<<20 + 5
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3145733")
		n := size
		if r.URL.Path == "/cut" {
			n = size - 100<<10
		}
		for n > 0 {
			k, err := w.Write(make([]byte, min(n, 7000)))
			if err != nil {
				return
			}
			n -= k
		}
	})
	for _, start := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer} {
		srv := start(handler)
		defer srv.Close()
		c, err := New(fetch.New(fetch.Config{}), false)
		if err != nil {
			t.Fatal(err)
		}
		if srv.TLS != nil {
			c.Transport.(*http.Transport).TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
		}
		for i, path := range []string{"/", "/", "/cut", "/"} {
			resp, err := c.Get(srv.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
			resp.Body.Close()
			if cut := path == "/cut"; cut != errors.Is(err, io.ErrUnexpectedEOF) || !cut && (n != size || err != nil) {
				t.Errorf("%s, request %d: %d bytes, %v", srv.URL, i, n, err)
			}
		}
	}
}
