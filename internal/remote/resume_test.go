package remote

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A weakNet makes connections that break after so many bytes of requests.
type weakNet struct {
	after int // of each connection but the last
	left  atomic.Int64
}

func (w *weakNet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || w.left.Add(-1) < 0 {
		return conn, err
	}
	return &weakConn{Conn: conn, left: w.after}, nil
}

type weakConn struct {
	net.Conn
	mu   sync.Mutex
	left int
}

func (w *weakConn) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left -= len(p); w.left < 0 {
		w.Conn.Close()
		return 0, net.ErrClosed
	}
	return w.Conn.Write(p)
}

// weak lets three connections break after three or four tasks each, of at least 19.
func weak(cfg *ClientConfig) {
	w := &weakNet{after: 300}
	w.left.Store(3)
	cfg.Dial = w.dial
}

func TestReadResumes(t *testing.T) {
	s := serve(t, nil)
	c, mem, all := dial(t, s, 512<<10, weak)
	f := open(t, c, "d/data")
	n, err := f.Move(t.Context(), all, 0)
	if err != nil || n != f.Size() || !bytes.Equal(mem[:n], s.data) {
		t.Fatalf("%d, %v", n, err)
	}
	if c.Lost() != 3 {
		t.Errorf("%d connections were lost, want 3", c.Lost())
	}
}

func TestWriteResumes(t *testing.T) {
	s := serve(t, nil)
	c, mem, all := dial(t, s, 512<<10, weak)
	want := noise(len(mem))
	copy(mem, want)
	f, err := c.Create(t.Context(), "d/new", int64(len(mem)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Move(t.Context(), all, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(s.dir, "new")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs, %v", err)
	}
	if c.Lost() != 3 {
		t.Errorf("%d connections were lost, want 3", c.Lost())
	}
}

// TestOtherVersion replaces the file between two connections.
func TestOtherVersion(t *testing.T) {
	s := serve(t, nil)
	c, _, all := dial(t, s, 4096, nil)
	f := open(t, c, "d/data")
	c.link.close(errors.New("pulled"))
	path := filepath.Join(s.dir, "data")
	if err := os.WriteFile(path+".new", s.data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	_, err := f.Move(t.Context(), all, 0)
	wantStatus(t, "another version", err, Changed)
}

// TestGivesUp loses every connection.
func TestGivesUp(t *testing.T) {
	s := serve(t, nil)
	var dead atomic.Bool
	c, _, all := dial(t, s, 4096, func(cfg *ClientConfig) {
		cfg.Tries, cfg.Pause = 3, time.Microsecond
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dead.Load() {
				return nil, errors.New("no route")
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	})
	f := open(t, c, "d/data")
	dead.Store(true)
	c.link.close(errors.New("pulled"))
	_, err := f.Move(t.Context(), all, 0)
	if lost, ok := errors.AsType[*LostError](err); !ok || lost.Tries != 3 {
		t.Errorf("%v", err)
	}
}
