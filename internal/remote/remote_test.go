package remote

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
)

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func openDevice(t *testing.T) rdma.Device {
	t.Helper()
	p, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// A stand is a server over a directory "d" with a file "data", and what it logged.
type stand struct {
	addr string
	dir  string
	data []byte
	mu   sync.Mutex
	log  []string
}

func (s *stand) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

func serve(t *testing.T, change func(*ServerConfig)) *stand {
	t.Helper()
	s := &stand{dir: filepath.Join(t.TempDir(), "d"), data: noise(300<<10 + 7)}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "data"), s.data, 0o644); err != nil {
		t.Fatal(err)
	}
	exports, err := NewExports([]string{s.dir})
	if err != nil {
		t.Fatal(err)
	}
	cfg := ServerConfig{Device: openDevice(t), Exports: exports, Chunk: 16 << 10, Depth: 4, Writable: true}
	cfg.Log = func(f string, a ...any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, sprintf(f, a...))
	}
	if change != nil {
		change(&cfg)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(cfg).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		exports.Close()
	})
	return s
}

// dial connects a client and registers n bytes of memory.
func dial(t *testing.T, s *stand, n int, change func(*ClientConfig)) (*Client, []byte, Range) {
	t.Helper()
	cfg := ClientConfig{Addr: s.addr, Device: openDevice(t), Depth: 4, Pause: time.Microsecond}
	if change != nil {
		change(&cfg)
	}
	c, err := Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	mr, err := c.PD().Register(rdma.Host(mem), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(mr.Close(), c.Close(), unix.Munmap(mem)); err != nil {
			t.Error(err)
		}
	})
	return c, mem, Range{MR: mr, N: uint64(n)}
}

func open(t *testing.T, c *Client, name string) *File {
	t.Helper()
	f, err := c.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func wantStatus(t *testing.T, what string, err error, want Status) {
	t.Helper()
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestRead(t *testing.T) {
	s := serve(t, nil)
	c, mem, all := dial(t, s, 512<<10, nil)
	f := open(t, c, "d/data")
	if f.Size() != int64(len(s.data)) || c.Provider() != "tcp" {
		t.Errorf("size %d, provider %s", f.Size(), c.Provider())
	}
	n, err := f.Move(t.Context(), all, 0)
	if err != nil || n != f.Size() || !bytes.Equal(mem[:n], s.data) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if !bytes.Equal(mem[n:], make([]byte, len(mem)-int(n))) {
		t.Error("bytes behind the end of the file were written")
	}
	part := Range{MR: all.MR, Off: 100, N: 5000}
	if n, err := f.Move(t.Context(), part, 70001); err != nil || !bytes.Equal(mem[100:5100], s.data[70001:75001]) {
		t.Errorf("part: %d, %v", n, err)
	}
	if n, err := f.Move(t.Context(), part, f.Size()); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if got, err := f.Sum(t.Context()); err != nil || got != crcOf(s.data) {
		t.Errorf("sum %#x, %v", got, err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if log := s.logged(); !strings.Contains(log, "connected, provider=tcp") {
		t.Errorf("log: %s", log)
	}
}

func TestNames(t *testing.T) {
	s := serve(t, nil)
	outside := filepath.Join(filepath.Dir(s.dir), "secret")
	for _, err := range []error{
		os.WriteFile(outside, []byte("secret"), 0o644),
		os.Symlink("../secret", filepath.Join(s.dir, "out")),
		os.Symlink("data", filepath.Join(s.dir, "in")),
		unix.Mkfifo(filepath.Join(s.dir, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c, _, _ := dial(t, s, 4096, nil)
	for name, want := range map[string]Status{
		"d/none": NotFound, "none": NotFound, "d": NotFound, "d/": NotFound, "secret": NotFound, "d/../secret": NotFound, "/etc/passwd": NotFound,
		"d/out": Denied, "d/pipe": Denied, "d/.": Denied, "": Invalid, strings.Repeat("x", maxName+1): Invalid,
	} {
		_, err := c.Open(t.Context(), name)
		wantStatus(t, name, err, want)
		if strings.Contains(sprintf("%v", err), filepath.Dir(s.dir)) {
			t.Errorf("the reply tells the server's paths: %v", err)
		}
	}
	if _, err := c.Open(t.Context(), "d/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	open(t, c, "d/in")
	if c.Lost() != 0 {
		t.Error("a negative answer cost the connection")
	}
}

func TestWrite(t *testing.T) {
	s := serve(t, nil)
	c, mem, all := dial(t, s, 512<<10, nil)
	want := noise(200<<10 + 3)
	copy(mem, want)
	f, err := c.Create(t.Context(), "d/new", int64(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	all.N = uint64(len(want))
	if n, err := f.Move(t.Context(), all, 0); err != nil || n != int64(len(want)) {
		t.Fatal(n, err)
	}
	path := filepath.Join(s.dir, "new")
	if _, err := os.Stat(path); err == nil {
		t.Error("the file has its name before it is complete")
	}
	if got, err := f.Sum(t.Context()); err != nil || got != crcOf(want) {
		t.Errorf("sum %#x, %v", got, err)
	}
	if err := errors.Join(f.Commit(t.Context()), f.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs, %v", err)
	}
	_, err = f.Move(t.Context(), all, 0)
	wantStatus(t, "write after commit", err, Invalid)
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAbandonedUpload(t *testing.T) {
	s := serve(t, nil)
	c, _, all := dial(t, s, 4096, nil)
	f, err := c.Create(t.Context(), "d/new", 4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Move(t.Context(), all, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(s.dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestWriteRefused(t *testing.T) {
	s := serve(t, nil)
	c, _, all := dial(t, s, 4096, nil)
	for name, want := range map[string]Status{"new": Denied, "d/a/b": Invalid, "d/..": Invalid, "d/.": Invalid, "e/x": Denied} {
		_, err := c.Create(t.Context(), name, 1)
		wantStatus(t, name, err, want)
	}
	f, err := c.Create(t.Context(), "d/small", 100)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Move(t.Context(), all, 0)
	wantStatus(t, "behind the end", err, Invalid)

	s = serve(t, func(cfg *ServerConfig) { cfg.Writable = false })
	c, _, _ = dial(t, s, 4096, nil)
	_, err = c.Create(t.Context(), "d/new", 1)
	wantStatus(t, "read-only server", err, Denied)
}

// TestChanged replaces the file while it is read.
func TestChanged(t *testing.T) {
	s := serve(t, nil)
	c, _, _ := dial(t, s, 4096, nil)
	f := open(t, c, "d/data")
	if err := os.WriteFile(filepath.Join(s.dir, "data"), []byte("shorter"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "close", f.Close(t.Context()), Changed)
}
