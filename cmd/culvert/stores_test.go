package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/objecttest"
)

// secret is in every password, key, token, signature and query of these tests. Nothing
// that a command prints or writes may contain it.
const secret = "verysecret"

// storeCommands are the commands that read and write objects. WEB is a web server that
// wants a password and a signature, DIR is a directory with files.
var storeCommands = []string{
	"ls s3://bucket/m/model.safetensors",
	"ls s3://bucket/m",
	"ls s3://bucket/run --json",
	"ls WEB/m/?SIG --json",
	"ls WEB/m/model.safetensors.index.json?SIG",
	"load s3://bucket/m gpu:0 --verify -v",
	"load s3://bucket/run/latest gpu:0",
	"load WEB/m/model.safetensors?SIG gpu:0 --verify --json",
	"load WEB/m/?SIG gpu:0 --dry-run",
	"load WEB/m/model.safetensors?SIG gpu:0 --dry-run --json",
	"load WEB/m/?SIG gpu:0 --trace trace.json",
	"cp s3://bucket/data out -v --verify",
	"cp WEB/data?SIG out --json --receipt receipt.json --trace trace.json",
	"cp WEB/data?SIG gpu:0 -v",
	"cp WEB/data?SIG out --dry-run --json",
	"cp s3://bucket/d/ tree --verify",
	"cp s3://bucket/d/ gpu:0",
	"cp data s3://bucket/new --verify --receipt receipt.json",
	"cp files s3://bucket/files",
	"cp s3://bucket/data WEB/m/model.safetensors?SIG one into",
	"save m.safetensors s3://bucket/new.safetensors",
	"save m.safetensors s3://bucket/m/model.safetensors",
	"save m.safetensors s3://bucket/run --step 7 --keep 1",
	"save WEB/m/model.safetensors?SIG saved.safetensors --json",
	"verify s3://bucket/m/model.safetensors WEB/m/?SIG",
	"verify WEB/m/model.safetensors?SIG --json",
	"verify --create s3://bucket/m/model.safetensors",
	"check s3://bucket/m gpu:0 -v",
	"check WEB/m/model.safetensors?SIG gpu:0 --json",
	"check WEB/data?SIG",
	"bench s3://bucket/data --size 1M --peer memory",
	"bench WEB/data?SIG --size 1M --json --html report.html",
}

// A storeBench is a store and a web server that misbehave when they are told, and a
// directory with files.
type storeBench struct {
	dir    string
	store  *objecttest.Store
	faults *objecttest.Faults
	web    string
	signed string

	uploads int // that cannot be removed
}

func newStoreBench(t *testing.T) *storeBench {
	t.Helper()
	b := &storeBench{dir: t.TempDir(), signed: "X-Amz-Signature=" + secret + "-signature&b=1"}
	oneTensor(t, filepath.Join(b.dir, "m.safetensors"))
	model, err := os.ReadFile(filepath.Join(b.dir, "m.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	data := objecttest.Bytes(9<<20+5, 3)
	for name, text := range map[string][]byte{"data": data, "one": []byte("one"), "files/a": []byte("a"), "files/b/c": data[:5<<20]} {
		path := filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"into", "run"} {
		if err := os.Mkdir(filepath.Join(b.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	index := []byte(`{"weight_map":{"x":"model.safetensors"}}`)
	manifest := b.manifest(t, model)
	web := objecttest.Files{"data": data, "m/model.safetensors": model, "m/model.safetensors.index.json": index, "m/model.safetensors.culvert.json": manifest}
	b.store = objecttest.NewStore(map[string][]byte{
		"data": data, "m/model.safetensors": model, "m/model.safetensors.culvert.json": manifest,
		"d/a": data[:100_000], "d/b/c": data[:5<<20], "run/step-000000003/model.safetensors": model,
	})
	b.faults = &objecttest.Faults{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case strings.HasPrefix(r.URL.Path, "/bucket"), strings.HasPrefix(r.URL.Path, "/other"):
			b.store.ServeHTTP(w, r)
		case user != "user" || password != secret+"-password" || r.URL.RawQuery != b.signed:
			http.Error(w, "no", http.StatusForbidden)
		default:
			web.ServeHTTP(w, r)
		}
	})}
	srv := httptest.NewServer(b.faults)
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	b.web = "http://user:" + secret + "-password@" + host
	for name, value := range objecttest.Environment("http://someone:" + secret + "-endpoint@" + host) {
		t.Setenv(name, value)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret+"-key")
	t.Setenv("AWS_SESSION_TOKEN", secret+"-token")
	t.Setenv("CULVERT_MACHINE", "soft")
	t.Setenv("CULVERT_SOFT", "memory=64M,poison=1")
	t.Setenv("CULVERT_OBJECT_ATTEMPTS", "2")
	t.Setenv("TMPDIR", b.dir)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(b.dir, "run"))
	t.Chdir(b.dir)
	t.Cleanup(func() {
		object.Forget()
		object.StopWith(context.Background())
	})
	return b
}

// manifest is the manifest of a model with one tensor.
func (b *storeBench) manifest(t *testing.T, model []byte) []byte {
	t.Helper()
	store := objecttest.NewStore(map[string][]byte{"m.safetensors": model})
	objecttest.BucketAt(t, store)
	t.Setenv("CULVERT_MACHINE", "soft")
	if said, code := b.run(t, t.Context(), "verify --create s3://bucket/m.safetensors"); code != 0 {
		t.Fatal(said)
	}
	text, _ := store.Object("m.safetensors.culvert.json")
	return bytes.ReplaceAll(text, []byte(`"m.safetensors"`), []byte(`"model.safetensors"`))
}

// run runs a command in this process, and returns what it printed and its exit status.
func (b *storeBench) run(t *testing.T, ctx context.Context, line string) (string, int) {
	t.Helper()
	line = strings.NewReplacer("WEB", b.web, "SIG", b.signed).Replace(line)
	printed, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	args, out, errs := os.Args, os.Stdout, os.Stderr
	defer func() { os.Args, os.Stdout, os.Stderr = args, out, errs }()
	os.Args, os.Stdout, os.Stderr = append([]string{"culvert"}, strings.Fields(line)...), printed, printed
	object.Forget()
	i := &interruption{}
	i.ctx, i.cancel = context.WithCancel(ctx)
	defer i.cancel()
	code := execute(i)
	text, err := os.ReadFile(printed.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), code
}

// clean checks that nothing of a command is left.
func (b *storeBench) clean(t *testing.T, said string) {
	t.Helper()
	if strings.Contains(said, secret) {
		t.Errorf("it printed a secret:\n%s", said)
	}
	_ = filepath.WalkDir(b.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") || strings.Contains(e.Name(), "part") {
			t.Errorf("it left %s", path)
		}
		if e.Name() != "data" && e.Name() != "out" {
			if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has a secret: %v", path, err)
			}
		}
		return nil
	})
	if n := b.store.Uploads() - b.uploads; n != 0 {
		t.Errorf("it left %d uploads", n)
	}
	// Connections are kept for the next request to the store.
	if err := goleak.Find(ignored...); err != nil {
		t.Error(err)
	}
}

// ignored are the goroutines of the tests, and of connections that are kept.
var ignored []goleak.Option

func ignoreNow() {
	ignored = []goleak.Option{
		goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
		// The software machine lives as long as the process.
		goleak.IgnoreAnyFunction("github.com/culvert-io/culvert/soft/nvme.(*Controller).work"),
		goleak.IgnoreAnyFunction("github.com/culvert-io/culvert/soft/nvme.(*Controller).manage"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
	}
}

func eachStoreCommand(t *testing.T, f func(t *testing.T, b *storeBench, line string)) {
	for _, line := range storeCommands {
		t.Run(strings.NewReplacer("/", "|").Replace(line), func(t *testing.T) {
			b := newStoreBench(t)
			ignoreNow()
			f(t, b, line)
		})
	}
}

// No command prints or writes a secret, or leaves anything behind.
func TestStores(t *testing.T) {
	eachStoreCommand(t, func(t *testing.T, b *storeBench, line string) {
		said, code := b.run(t, t.Context(), line)
		if code != 0 {
			t.Errorf("status %d:\n%s", code, said)
		}
		b.clean(t, said)
	})
}

// A command that fails says why, without secrets, and leaves nothing behind.
func TestStoresFail(t *testing.T) {
	always := func(f objecttest.Fault) func(int, *http.Request) objecttest.Fault {
		return func(int, *http.Request) objecttest.Fault { return f }
	}
	late := func(n int, r *http.Request) objecttest.Fault {
		if n < 3 || r.Method == http.MethodDelete || r.Method == http.MethodPost && r.URL.Query().Has("uploads") {
			return objecttest.None
		}
		return objecttest.Cut
	}
	wrong := "X-Amz-Signature=" + secret
	for _, c := range []struct {
		name  string
		words []string // to replace in the command
		key   string   // that the store knows; "" for the right one
		on    func(int, *http.Request) objecttest.Fault
	}{
		{name: "missing", words: []string{"bucket/", "bucket/no/", "WEB/", "WEB/no/"}},
		{name: "bucket", words: []string{"bucket/", "other/", "SIG", wrong}},
		{name: "key", words: []string{"SIG", wrong}, key: "another"},
		{name: "closed", on: always(objecttest.CutEarly)},
		{name: "broken", on: always(objecttest.Broken)},
		{name: "cut", on: late},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachStoreCommand(t, func(t *testing.T, b *storeBench, line string) {
				if c.key != "" {
					b.store.AccessKey = c.key
				}
				b.faults.On(c.on)
				said, code := b.run(t, t.Context(), strings.NewReplacer(c.words...).Replace(line))
				writes := strings.HasPrefix(line, "save m") || strings.HasPrefix(line, "cp data") || strings.HasPrefix(line, "cp files")
				offline := strings.HasPrefix(line, "cp") && strings.Contains(line, "--dry-run")
				may := offline || c.name == "missing" && writes || c.name == "cut" // what succeeds all the same
				if code != exitFailed && !may || !strings.Contains(said, "culvert: ") && code != 0 {
					t.Errorf("status %d:\n%s", code, said)
				}
				b.clean(t, said)
			})
		})
	}
}

// A silence is what a store does from one request on.
type silence int

const (
	silent  silence = iota // it reads requests and does not answer
	late                   // it answers after the command was stopped
	headers                // it sends no byte of a body
	trickle                // it sends a byte now and then
)

func (s silence) String() string { return []string{"silent", "late", "headers", "trickle"}[s] }

// A mute store stops the command at a request and does not answer it, nor those that are
// there by then. Later ones, which clean up, are answered.
type mute struct {
	from     int // the request that stops the command
	how      silence
	handler  http.Handler
	stop     func()
	released chan struct{}

	mu    sync.Mutex
	n     int
	sent  time.Time // when the command was stopped
	begun bool      // the beginning of an upload was not answered
}

func (m *mute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // or the end of the connection is not seen
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.mu.Lock()
	n := m.n
	m.n++
	answered := n < m.from || !m.sent.IsZero()
	m.begun = m.begun || !answered && m.how > late && r.Method == http.MethodPost && r.URL.Query().Has("uploads")
	m.mu.Unlock()
	if answered {
		m.handler.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	if m.how != silent {
		m.handler.ServeHTTP(answer, r)
	}
	text := answer.Body.Bytes()
	if m.how == late || m.how > late && (len(text) < 2 || r.Method == http.MethodHead) { // no body that could be missing
		m.stopped(n)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(text)
		return
	}
	if m.how != silent {
		maps.Copy(w.Header(), answer.Header())
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.WriteHeader(answer.Code)
		if m.how == trickle {
			_, _ = w.Write(text[:1])
		}
		w.(http.Flusher).Flush()
	}
	m.stopped(n)
	select {
	case <-r.Context().Done():
	case <-m.released:
	}
}

func (m *mute) stopped(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n == m.from {
		m.sent = time.Now()
		m.stop()
	}
}

// A command that is stopped while a store does not answer ends, whichever request that
// is, and leaves nothing behind.
func TestStoresStop(t *testing.T) {
	eachStoreCommand(t, func(t *testing.T, b *storeBench, line string) {
		b.faults.On(nil)
		if said, code := b.run(t, t.Context(), line); code != 0 {
			t.Fatal(said)
		}
		step := 1
		if !strings.HasPrefix(line, "save") && !strings.HasPrefix(line, "cp data") {
			step += b.faults.Requests() / 6 // the requests of reads are alike
		}
		total := b.faults.Requests()
		for n := 0; n < total; n += step {
			for _, how := range []silence{silent, late + silence(n/step%3)} {
				t.Run(fmt.Sprintf("%d %v", n, how), func(t *testing.T) { stopAt(t, line, n, how) })
			}
		}
	})
}

func stopAt(t *testing.T, line string, n int, how silence) {
	b := newStoreBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := &mute{from: n, how: how, handler: b.faults.Handler, stop: cancel, released: make(chan struct{})}
	b.faults.Handler = m
	ignoreNow()
	// A minute is far less than the store is waited for.
	late := time.AfterFunc(time.Minute, func() { close(m.released) })
	said, code := b.run(t, ctx, line)
	if m.sent.IsZero() {
		t.Skip("it makes fewer requests this time")
	}
	took := time.Since(m.sent)
	if !late.Stop() || took > 30*time.Second {
		t.Errorf("it went on for %v", took)
	}
	if code != 0 && !strings.Contains(said, "stopped") {
		t.Errorf("it does not say that it was stopped, but:\n%s", said)
	}
	keys := b.store.Keys()
	for _, key := range keys {
		if model, ok := strings.CutSuffix(key, ".culvert.json"); ok && !slices.Contains(keys, model) {
			t.Errorf("it left %s without a model", key)
		}
	}
	if m.begun { // nobody but the store knows its name
		b.uploads = b.store.Uploads()
	}
	b.clean(t, said)
}

// The password of one URL is not sent for another.
func TestStoresUsers(t *testing.T) {
	b := newStoreBench(t)
	model := "/m/model.safetensors?SIG"
	plain := "http://" + b.web[strings.Index(b.web, "@")+1:] + model
	for _, models := range []string{"WEB" + model + " " + plain, plain + " WEB" + model} {
		said, code := b.run(t, t.Context(), "verify "+models)
		if code != exitFailed || strings.Count(said, "ok http") != 1 || strings.Count(said, "HTTP 403") != 1 {
			t.Errorf("status %d: %s", code, said)
		}
	}
}
