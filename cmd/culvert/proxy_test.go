package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/object/objecttest"
)

// A proxied is a store, with TLS and without, behind a proxy that wants a password.
// Hosts of loopback never pass a proxy, so the command uses names that only the proxy
// knows: example.com, for which the certificate of the test server is made.
type proxied struct {
	proxy *objecttest.Proxy
	plain string // host:port of the store
	env   []string
	dir   string
}

const (
	proxyUser     = "user"
	proxyPassword = "hidden%20word"
)

func startProxied(t *testing.T) *proxied {
	t.Helper()
	store := objecttest.NewStore(nil)
	web := objecttest.Files{"data": objecttest.Bytes(3<<20, 5)}
	both := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/bucket") {
			store.ServeHTTP(w, r)
			return
		}
		web.ServeHTTP(w, r)
	})
	plain, secure := httptest.NewServer(both), httptest.NewTLSServer(both)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	p := &proxied{dir: t.TempDir(), plain: plain.Listener.Addr().String()}
	p.proxy = &objecttest.Proxy{Plain: p.plain, TLS: secure.Listener.Addr().String(), User: proxyUser, Password: "hidden word"}
	srv := httptest.NewServer(p.proxy)
	t.Cleanup(srv.Close)
	roots := filepath.Join(p.dir, "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "data"), web["data"], 0o600); err != nil {
		t.Fatal(err)
	}
	p.env = append(os.Environ(), "CULVERT_MACHINE=soft", "CULVERT_SOFT=memory=256M", "SSL_CERT_FILE="+roots, "CULVERT_OBJECT_ATTEMPTS=2",
		"NO_PROXY=", "no_proxy=", "http_proxy=", "https_proxy=")
	for name, value := range objecttest.Environment("http://example.com") {
		p.env = append(p.env, name+"="+value)
	}
	p.env = append(p.env, p.through(strings.TrimPrefix(srv.URL, "http://"), proxyPassword)...)
	return p
}

// through are the variables of a proxy.
func (p *proxied) through(host, password string) []string {
	u := fmt.Sprintf("http://%s:%s@%s", proxyUser, password, host)
	return []string{"HTTP_PROXY=" + u, "HTTPS_PROXY=" + u}
}

// run runs the command with more variables; the password is never printed.
func (p *proxied) run(t *testing.T, vars []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("culvert", args...)
	cmd.Dir, cmd.Env = p.dir, append(p.env[:len(p.env):len(p.env)], vars...)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "hidden") {
		t.Errorf("culvert %s printed a password:\n%s", strings.Join(args, " "), out)
	}
	return string(out), err
}

// back copies an object to a file, which must have the right bytes.
func (p *proxied) back(t *testing.T, url string, vars ...string) {
	t.Helper()
	if out, err := p.run(t, vars, "cp", url, "back"); err != nil {
		t.Fatalf("%s: %v\n%s", url, err, out)
	}
	want, _ := os.ReadFile(filepath.Join(p.dir, "data"))
	if got, err := os.ReadFile(filepath.Join(p.dir, "back")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes of %d, %v", url, len(got), len(want), err)
	}
}

// Objects are read and written through a proxy: in plain, and with TLS by CONNECT.
func TestProxy(t *testing.T) {
	p := startProxied(t)
	secure := "AWS_ENDPOINT_URL=https://example.com"
	p.back(t, "http://example.com/data")
	for _, vars := range [][]string{nil, {secure}} {
		if out, err := p.run(t, vars, "cp", "data", "s3://bucket/copy"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if p.back(t, "s3://bucket/copy", vars...); vars == nil && p.proxy.Tunnels.Load() > 0 {
			t.Error("plain requests were made by CONNECT")
		}
	}
	plain := p.proxy.Asked.Load()
	if p.back(t, "https://example.com/data"); plain == 0 || p.proxy.Tunnels.Load() == 0 || p.proxy.Asked.Load() != plain {
		t.Errorf("%d plain requests and %d connections, then %d", plain, p.proxy.Tunnels.Load(), p.proxy.Asked.Load())
	}
}

// Hosts of NO_PROXY are asked without the proxy. 0.0.0.0 is this host, and no address
// of loopback, which would never pass the proxy.
func TestNoProxy(t *testing.T) {
	p := startProxied(t)
	url := strings.Replace("http://"+p.plain+"/data", "127.0.0.1", "0.0.0.0", 1)
	if p.back(t, url); p.proxy.Asked.Load() == 0 {
		t.Fatal("the proxy was not asked")
	}
	p.proxy.Asked.Store(0)
	if p.back(t, url, "NO_PROXY=other,0.0.0.0"); p.proxy.Asked.Load() != 0 {
		t.Error("the proxy was asked")
	}
}

// A proxy that does not do its work is named, without its password.
func TestProxyRefuses(t *testing.T) {
	p := startProxied(t)
	address := strings.TrimPrefix(p.env[len(p.env)-1], "HTTPS_PROXY=http://"+proxyUser+":"+proxyPassword+"@")
	for _, c := range []struct {
		name        string
		status      int
		vars        []string
		plain, conn string // the sentences of plain requests and of CONNECT
	}{
		{"wrong password", 0, p.through(address, "hidden"), "the proxy http://" + address + " rejects the user name and password", ""},
		{"refusal", http.StatusForbidden, nil, "the proxy http://" + address + ", or the server behind it, does not permit it", "the proxy http://" + address + ` makes no connection to example.com:443: it answers "403 Forbidden"`},
		{"no proxy", 0, p.through("127.0.0.1:1", "hidden"), "the proxy does not answer", ""},
		{"no address", 0, p.through("%zz", "hidden"), "_PROXY is not the URL of a proxy, such as http://HOST:PORT", ""},
	} {
		p.proxy.Refuse = c.status
		for url, words := range map[string]string{"http://example.com/data": c.plain, "https://example.com/data": c.conn, "s3://bucket/data": c.plain} {
			if words == "" {
				words = c.plain
			}
			out, err := p.run(t, c.vars, "cp", url, "back")
			if err == nil || !strings.Contains(out, words) || !strings.Contains(out, "_PROXY") && c.plain == words && c.status == 0 {
				t.Errorf("%s, %s: want %q, got %v\n%s", c.name, url, words, err, out)
			}
		}
	}
}
