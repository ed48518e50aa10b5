package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/abi/gdra"
	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/rdma"
)

func sprintf(f string, a ...any) string { return fmt.Sprintf(f, a...) }

func crcOf(b []byte) uint32 { return crc32c.Sum(b) }

func TestToken(t *testing.T) {
	s := serve(t, func(cfg *ServerConfig) { cfg.Token = []byte("right") })
	dial(t, s, 4096, func(cfg *ClientConfig) { cfg.Token = []byte("right") })
	for _, token := range []string{"", "wrong", "right "} {
		_, err := Dial(t.Context(), ClientConfig{Addr: s.addr, Device: openDevice(t), Token: []byte(token)})
		if !errors.Is(err, ErrToken) {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

// TestStrangers sends what is no greeting.
func TestStrangers(t *testing.T) {
	s := serve(t, nil)
	sample, err := (&gdra.Request{}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sent []byte
		log  string
	}{
		{sample, "a client of gpu_direct_rdma_access"},
		{[]byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n" + strings.Repeat("x", 100)), "no greeting of culvert"},
		{[]byte(magic), "greeting after 8 bytes"},
	} {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(c.sent); err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(conn); len(b) > greeting {
			t.Errorf("a stranger got %q, %v", b, err)
		}
		conn.Close()
	}
	c, _, _ := dial(t, s, 4096, nil) // the server still serves
	open(t, c, "d/data")
	log := s.logged()
	for _, want := range []string{"gpu_direct_rdma_access", "no greeting of culvert", "greeting after 8 bytes"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
}

// TestHostileRequests sends requests that a client of this package does not send.
func TestHostileRequests(t *testing.T) {
	s := serve(t, nil)
	c, _, all := dial(t, s, 64<<10, nil)
	f := open(t, c, "d/data")
	key := rdma.Remote(all.MR)
	for name, req := range map[string]request{
		"no such handle":     {Op: opRead, Handle: 99, Len: 1, Addr: key.Addr, RKey: key.RKey},
		"guessed upload":     {Op: opResume, Handle: 1},
		"length 0":           {Op: opRead, Handle: f.handle, Addr: key.Addr, RKey: key.RKey},
		"length over chunk":  {Op: opRead, Handle: f.handle, Len: 16<<10 + 1, Addr: key.Addr, RKey: key.RKey},
		"huge length":        {Op: opRead, Handle: f.handle, Len: 1 << 63, Addr: key.Addr, RKey: key.RKey},
		"huge offset":        {Op: opRead, Handle: f.handle, Len: 1, Off: 1 << 63, Addr: key.Addr, RKey: key.RKey},
		"write to read file": {Op: opWrite, Handle: f.handle, Len: 1, Addr: key.Addr, RKey: key.RKey},
		"commit read file":   {Op: opCommit, Handle: f.handle},
		"unknown operation":  {Op: 200},
		"operation 0":        {},
	} {
		r, err := c.link.call(t.Context(), &req)
		if err != nil || r.Status == OK || r.Reason == "" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if c.Lost() != 0 || !c.link.alive() {
		t.Error("the connection was lost")
	}
	if got, err := os.ReadFile(filepath.Join(s.dir, "data")); err != nil || !bytes.Equal(got, s.data) {
		t.Error("the file changed")
	}
}

// TestWrongKey gives the server a key of other memory: the task is refused, nothing is
// written, and the client goes on.
func TestWrongKey(t *testing.T) {
	s := serve(t, nil)
	c, mem, all := dial(t, s, 64<<10, nil)
	f := open(t, c, "d/data")
	_, err := f.do(t.Context(), request{Op: opRead, Len: 4096, Addr: all.MR.Addr(), RKey: all.MR.RKey() ^ 1<<8})
	wantStatus(t, "wrong key", err, Access)
	_, err = f.do(t.Context(), request{Op: opRead, Len: 4096, Addr: all.MR.Addr() + 62<<10, RKey: all.MR.RKey()})
	wantStatus(t, "outside of the region", err, Access)
	if !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Error("memory changed")
	}
	if n, err := f.Move(t.Context(), all, 0); err != nil || !bytes.Equal(mem[:n], s.data[:n]) {
		t.Errorf("afterwards: %d, %v", n, err)
	}
}

func TestTooManyClients(t *testing.T) {
	s := serve(t, func(cfg *ServerConfig) { cfg.Clients = 1 })
	dial(t, s, 4096, nil)
	if _, err := Dial(t.Context(), ClientConfig{Addr: s.addr, Device: openDevice(t)}); err == nil {
		t.Error("a second client was accepted")
	}
}

func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = Dial(t.Context(), ClientConfig{Addr: l.Addr().String(), Device: openDevice(t)})
	if _, ok := errors.AsType[*LostError](err); !ok {
		t.Errorf("%v", err)
	}
}

// TestCancel ends a transfer; the queue pair is closed before Move returns.
func TestCancel(t *testing.T) {
	s := serve(t, nil)
	c, _, all := dial(t, s, 64<<10, nil)
	f := open(t, c, "d/data")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Move(ctx, all, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := f.Move(t.Context(), all, 0); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
