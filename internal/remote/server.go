package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/culvert-io/culvert/internal/abi/gdra"
	"github.com/culvert-io/culvert/rdma"
)

// A ServerConfig says what a server serves, and how.
type ServerConfig struct {
	Device   rdma.Device
	Exports  *Exports
	Token    []byte // clients must know it; empty means everyone may connect
	Writable bool   // clients may write files into served directories
	Chunk    int    // bytes of a task at most; 0 means 1 MiB
	Depth    int    // tasks of a client at a time; 0 means 8
	Clients  int    // at a time; 0 means 32
	// Grace is how long the upload of a lost connection can be resumed; 0 means 1 min.
	Grace time.Duration
	// Log is called for every connection, task that failed, and file; with Trace for
	// every task. It may be nil.
	Log   func(format string, args ...any)
	Trace bool
}

// A Server executes tasks of clients.
type Server struct {
	cfg ServerConfig

	clients *semaphore.Weighted

	mu      sync.Mutex
	uploads map[uint64]*upload
	wg      sync.WaitGroup
}

// greetTime is how long a client may take to introduce itself.
const greetTime = 10 * time.Second

// NewServer returns a server. Serve starts it.
func NewServer(cfg ServerConfig) *Server {
	cfg.Chunk = cmp.Or(cfg.Chunk, 1<<20)
	cfg.Depth = cmp.Or(cfg.Depth, 8)
	cfg.Clients = cmp.Or(cfg.Clients, 32)
	cfg.Grace = cmp.Or(cfg.Grace, time.Minute)
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	return &Server{cfg: cfg, clients: semaphore.NewWeighted(int64(cfg.Clients)), uploads: map[uint64]*upload{}}
}

// Serve accepts clients until ctx ends, and returns when all of them are gone. Uploads
// that were not committed are removed.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer s.end()
	defer s.wg.Wait()
	defer cancel()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept on %v: %w", l.Addr(), err)
		}
		s.wg.Go(func() {
			defer conn.Close() // after the log
			if err := s.connection(ctx, conn); err != nil && ctx.Err() == nil {
				s.cfg.Log("%v: %v", conn.RemoteAddr(), err)
			}
		})
	}
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.uploads {
		u.discard()
		delete(s.uploads, id)
	}
}

// connection serves one client.
func (s *Server) connection(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if !s.clients.TryAcquire(1) {
		return fmt.Errorf("refused: %d clients are connected", s.cfg.Clients)
	}
	defer s.clients.Release(1)
	if err := conn.SetDeadline(time.Now().Add(greetTime)); err != nil {
		return err
	}
	first := &firstBytes{Conn: conn}
	if err := greet(first, s.cfg.Token, true); err != nil {
		return explainForeign(first.seen, err)
	}
	ses, err := newSession(ctx, s, conn)
	if err != nil {
		return err
	}
	defer ses.close()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	s.cfg.Log("%v: connected, provider=%s", conn.RemoteAddr(), s.cfg.Device.Provider())
	err = ses.run(ctx)
	s.cfg.Log("%v: disconnected, provider=%s read=%d written=%d", conn.RemoteAddr(), s.cfg.Device.Provider(), ses.read.Load(), ses.written.Load())
	return err
}

// firstBytes keeps what a client sends first.
type firstBytes struct {
	net.Conn
	seen []byte
}

func (f *firstBytes) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.seen = append(f.seen, p[:min(n, gdra.RequestSize)]...)
	return n, err
}

// explainForeign names a client of the sample, whose requests look like ours but for
// the protocol: it needs Dynamically Connected transport of mlx5, which no provider has.
func explainForeign(seen []byte, err error) error {
	if bytes.HasPrefix(seen, []byte{0, 82, 0}) {
		return errors.New("a client of gpu_direct_rdma_access: it needs Dynamically Connected transport, which this server does not have (fix: use culvert rdma read)")
	}
	return fmt.Errorf("greet: %w", err)
}

// startUpload makes an upload known under a handle that others cannot guess.
func (s *Server) startUpload(u *upload) uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	id := binary.BigEndian.Uint64(b[:]) | 1
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uploads[id] = u
	u.users = 1
	return id
}

// resumeUpload gives the upload to one more connection.
func (s *Server) resumeUpload(id uint64) (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	if u == nil {
		return nil, refuse(NotFound, "the server has no such upload: it was lost for more than %v, or the server was restarted", s.cfg.Grace)
	}
	u.users++
	return u, nil
}

// releaseUpload takes the upload from a connection. Without one it is dropped: at once
// if its client closed it, otherwise if no client resumes it in time.
func (s *Server) releaseUpload(id uint64, u *upload, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.users--
	switch {
	case u.users > 0:
	case closed:
		s.forgetLocked(id, u)
	default:
		time.AfterFunc(s.cfg.Grace, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if u.users == 0 {
				s.forgetLocked(id, u)
			}
		})
	}
}

func (s *Server) forgetLocked(id uint64, u *upload) {
	if s.uploads[id] == u {
		u.discard()
		delete(s.uploads, id)
	}
}
