package hold

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMode: only the user may connect, whatever the umask is.
func TestMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := socket(t)
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stayed: %v", err)
	}
}

func TestStale(t *testing.T) {
	path := socket(t)
	stale(t, path)
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatalf("a dead holder's socket was not replaced: %v", err)
	}
	if _, err := Listen(t.Context(), path); !errors.Is(err, ErrServed) {
		t.Errorf("a live holder's socket was taken: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the live holder was disturbed: %v", err)
	} else {
		c.Close()
	}
	l.Close()
}

func TestListenErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(file, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), file); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file was taken for a socket: %v", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "precious" {
		t.Error("the file is gone")
	}
	if _, err := Listen(t.Context(), filepath.Join(dir, "none", "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := Listen(t.Context(), filepath.Join(dir, strings.Repeat("x", 120))); err == nil || !strings.Contains(err.Error(), "107 bytes") {
		t.Errorf("a long path: %v", err)
	}
}

// TestRace: of several that start at once on a dead socket, one gets it.
func TestRace(t *testing.T) {
	path := socket(t)
	stale(t, path)
	type result struct {
		l   *Listener
		err error
	}
	results := make(chan result, 8)
	for range cap(results) {
		go func() {
			l, err := Listen(t.Context(), path)
			results <- result{l, err}
		}()
	}
	holders := 0
	for range cap(results) {
		r := <-results
		switch {
		case r.err == nil:
			holders++
			defer r.l.Close()
		case !errors.Is(r.err, ErrServed):
			t.Error(r.err)
		}
	}
	if holders != 1 {
		t.Errorf("%d hold the socket", holders)
	}
}

// TestSuccessor: a server that ends leaves the socket of the next one.
func TestSuccessor(t *testing.T) {
	path := socket(t)
	first, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // again, as a command does
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the successor lost its socket: %v", err)
	}
	c.Close()
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Errorf("its directory is gone: %v", err)
	}
}
