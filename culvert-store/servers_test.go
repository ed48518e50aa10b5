package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"golang.org/x/sys/unix"
)

// culvert is the command under test.
var culvert string

// asStore makes the test program culvert-store, so that tests run all of it without
// building it again.
const asStore = "CULVERT_STORE_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asStore) != "" {
		main()
		return
	}
	os.Exit(withCommand(m))
}

// withCommand builds the command from the module above, and runs the tests.
func withCommand(m *testing.M) int {
	dir, err := os.MkdirTemp("", "culvert-store-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	culvert = filepath.Join(dir, "culvert")
	build := exec.Command("go", "build", "-C", "..", "-o", culvert, "./cmd/culvert")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build culvert: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

const (
	accessKey = "AKIDEXAMPLE"
	secretKey = "wJalrXUtnFEMI"
	bucket    = "models"
	long      = 5 * time.Minute // what takes longer hangs, on a busy machine, too
)

// A server is an S3 server with an empty bucket. Requests pass gate, so that tests can
// stop a client where they want.
type server struct {
	endpoint string
	gate     atomic.Pointer[func(*http.Request)]

	// What it has of S3.
	keys        bool // it knows who asks
	conditions  bool // conditional completion of uploads
	checksums   bool // CRC-32C of objects
	bucketNames bool // it says which names are impossible
}

// each runs a test against all servers.
func each(t *testing.T, test func(*testing.T, *server)) {
	t.Run("culvert-store", func(t *testing.T) {
		u := startStore(t, "-bucket", bucket, t.TempDir())
		s := &server{keys: true, conditions: true, checksums: true, bucketNames: true}
		// Signatures cover the host that the client asked for.
		s.serve(t, &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(u)
				r.Out.Host = r.In.Host
			},
			ErrorLog: log.New(io.Discard, "", 0), // of clients that were killed
		})
		test(t, s)
	})
	t.Run("gofakes3", func(t *testing.T) {
		mem := s3mem.New()
		if err := mem.CreateBucket(bucket); err != nil {
			t.Fatal(err)
		}
		s := &server{}
		s.serve(t, gofakes3.New(mem, gofakes3.WithTimeSkewLimit(0)).Server())
		test(t, s)
	})
}

func (s *server) serve(t *testing.T, h http.Handler) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gate := s.gate.Load(); gate != nil {
			(*gate)(r)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s.endpoint = srv.URL
}

// hold stops requests that match until the returned function is called, which may be
// called twice. arrived has an element for each of the first of them.
func (s *server) hold(t *testing.T, match func(*http.Request) bool) (arrived chan struct{}, release func()) {
	arrived = make(chan struct{}, 100)
	ctx, release := context.WithCancel(context.Background())
	gate := func(r *http.Request) {
		if match(r) && ctx.Err() == nil {
			select {
			case arrived <- struct{}{}:
			default:
			}
			<-ctx.Done()
		}
	}
	s.gate.Store(&gate)
	t.Cleanup(release) // before the server closes, which waits for its requests
	return arrived, release
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(long):
		t.Fatalf("%s: not within %s", what, long)
	}
}

// startStore runs culvert-store and returns its URL when it answers. The test fails if
// it does not end at SIGTERM.
func startStore(t *testing.T, args ...string) *url.URL {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), asStore+"=1", "AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		late := time.AfterFunc(long, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("culvert-store after SIGTERM: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	text, ok := strings.CutPrefix(strings.TrimSpace(line), "export AWS_ENDPOINT_URL=")
	u, err := url.Parse(text)
	if !ok || err != nil {
		t.Fatalf("culvert-store printed %q: %v", line, err)
	}
	answers(t, u)
	return u
}

// answers waits until a server listens: culvert-store prints its address before.
func answers(t *testing.T, u *url.URL) {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get(u.String()); err == nil {
			_ = resp.Body.Close()
			return
		}
	}
	t.Fatalf("%s does not answer", u)
}
