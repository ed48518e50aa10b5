package https

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/fetch"
	. "github.com/culvert-io/culvert/internal/object/objecttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var fixedTime = time.Unix(1_700_000_000, 0)

// Short parts and no waits, so that every fault meets several requests.
var quick = fetch.Config{Parts: 3, MinPart: 1, Attempts: 4, Jitter: func() float64 { return 0 }}

// serve serves files with faults and returns the server as a bucket.
func serve(t *testing.T, f *Faults) object.Bucket {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(u, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.(*server).http.CloseIdleConnections)
	return b
}

func open(t *testing.T, b object.Bucket, key string) *object.File {
	t.Helper()
	f, err := object.OpenIn(t.Context(), b, key, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Whatever happens to an answer, the bytes are right or there is an error.
func TestFaults(t *testing.T) {
	data := Bytes(300_000, 1)
	for _, c := range []struct {
		name  string
		fault Fault
		times int  // how many requests it meets
		fails bool // an error is right
	}{
		{"cut", Cut, 3, false},
		{"cut early", CutEarly, 2, false},
		{"truncated", Truncate, 2, false},
		{"longer", Longer, 2, false},
		{"503", SlowDown, 2, false},
		{"500", Broken, 2, false},
		{"redirected", Redirect, 100, false},
		{"whole", Whole, 2, false},
		{"reordered", Reorder, 3, false},
		{"replaced", Replace, 1, true},
		{"delayed", Delay, 1, false},
		{"lost", Lost, 2, false},
		{"cut for ever", CutEarly, 1000, true},
		{"503 for ever", SlowDown, 1000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &Faults{Handler: Files{"a": data}}
			b := serve(t, f)
			o := open(t, b, "a")
			if c.fault == Delay { // how fast the server answers must be known
				if _, err := o.ReadAt(make([]byte, 1000), 0); err != nil {
					t.Fatal(err)
				}
				o = open(t, b, "a")
			}
			f.On(func(n int, r *http.Request) Fault {
				// The first part has nothing before it that could be sent instead.
				if n < c.times && (c.fault != Reorder || r.Header.Get("Range") == "bytes=100000-199999") {
					return c.fault
				}
				return None
			})
			got := make([]byte, len(data))
			_, err := o.ReadAt(got, 0)
			if c.fails != (err != nil) {
				t.Fatalf("error %v", err)
			}
			if err == nil && !bytes.Equal(got, data) {
				t.Fatal("wrong bytes were acknowledged")
			}
			if err != nil && !strings.Contains(err.Error(), b.URL("a")) {
				t.Errorf("the error does not name the object: %v", err)
			}
			if from := o.TakeOrigin(); err == nil && c.fault != Redirect && from.Retries+from.Hedges == 0 || from.Requests < 4 {
				t.Errorf("%d requests, %d retries", from.Requests, from.Retries)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	b := serve(t, &Faults{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/forbidden":
			w.WriteHeader(http.StatusForbidden)
		case "/noranges":
			_, _ = w.Write([]byte("all of it"))
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/nowhere":
			w.Header().Set("Location", "http://h:%zz/?secret")
			w.WriteHeader(http.StatusFound)
		case "/empty":
			http.ServeContent(w, r, "", fixedTime, bytes.NewReader(nil))
		default:
			http.NotFound(w, r)
		}
	})})
	for key, want := range map[string]struct {
		text string
		is   error
	}{
		"missing?token=secret": {"no such file", fs.ErrNotExist},
		"forbidden":            {"does not permit it", fs.ErrPermission},
		"noranges":             {"no range requests", nil},
		"loop":                 {"redirected more than", nil},
		"nowhere":              {"redirects to something that is no URL", nil},
	} {
		_, err := object.OpenIn(t.Context(), b, key, "")
		if err == nil || !strings.Contains(err.Error(), want.text) || want.is != nil && !errors.Is(err, want.is) {
			t.Errorf("%s: %v", key, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error has the secret of the URL: %v", err)
		}
	}
	if f := open(t, b, "empty"); f.Info().Size != 0 {
		t.Errorf("an empty file has %d bytes", f.Info().Size)
	}
}

// A server to which another one redirects learns neither the password nor the query of
// what was asked for; the one that was named gets both, also if it redirects to itself.
func TestRedirectsKeepSecrets(t *testing.T) {
	files := Files{"there": Bytes(1000, 1)}
	var got []http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Clone())
		files.ServeHTTP(w, r)
	}))
	defer other.Close()
	var own []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own = append(own, r.Header.Get("Authorization"))
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/b", http.StatusFound)
			return
		}
		http.Redirect(w, r, other.URL+"/there", http.StatusFound)
	}))
	defer srv.Close()
	u, err := url.Parse(strings.Replace(srv.URL, "://", "://user:secret@", 1))
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(u, quick)
	if err != nil {
		t.Fatal(err)
	}
	defer b.(*server).http.CloseIdleConnections()
	if info := open(t, b, "a?signature=secret").Info(); info.Size != 1000 {
		t.Errorf("%+v", info)
	}
	if len(own) != 2 || own[0] == "" || own[1] != own[0] {
		t.Errorf("the server itself got %q", own)
	}
	if len(got) != 1 || got[0].Get("Authorization") != "" || got[0].Get("Referer") != "" {
		t.Errorf("the other server got %v", got)
	}
}

// A file that is replaced between two reads is not mixed with the new one.
func TestReplacedFile(t *testing.T) {
	files := Files{"a": Bytes(1000, 1)}
	o := open(t, serve(t, &Faults{Handler: files}), "a")
	files["a"] = Bytes(1000, 2)
	if _, err := o.ReadAt(make([]byte, 1000), 0); !errors.Is(err, object.ErrChanged) {
		t.Errorf("error %v", err)
	}
}

func TestTLS(t *testing.T) {
	data := Bytes(100_000, 1)
	srv := httptest.NewUnstartedServer(Files{"a": data})
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	u, _ := url.Parse(srv.URL)
	b, err := New(u, quick)
	if err != nil {
		t.Fatal(err)
	}
	s := b.(*server)
	defer s.http.CloseIdleConnections()
	_, err = object.OpenIn(t.Context(), b, "a", "")
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		t.Fatalf("a certificate that nobody trusts: %v", err)
	}
	plain := httptest.NewServer(nil)
	defer plain.Close()
	u.Host = plain.Listener.Addr().String()
	without, err := New(u, quick)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := object.OpenIn(t.Context(), without, "a", ""); err == nil || !strings.HasSuffix(err.Error(), "no TLS at this port (fix: http:// instead of https://, or another port)") {
		t.Errorf("a server without TLS: %v", err)
	}
	s.http.Transport.(*http.Transport).TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
	got := make([]byte, len(data))
	if _, err := open(t, b, "a").ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("over TLS: %v", err)
	}
}

func TestAbort(t *testing.T) {
	entered, leave := make(chan bool, 10), make(chan bool)
	files := Files{"a": Bytes(1000, 1)}
	f := &Faults{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "bytes=0-0" {
			entered <- true
			<-leave
		}
		files.ServeHTTP(w, r)
	})}
	o := open(t, serve(t, f), "a")
	defer close(leave)
	go func() {
		<-entered
		o.Abort()
	}()
	if _, err := o.ReadAt(make([]byte, 1000), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
