package remote

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/rdma"
)

// A session is a connected client on the server: a queue pair, staging memory for the
// tasks in flight, and the files that the client opened.
type session struct {
	srv  *Server
	conn net.Conn
	end  *endpoint.Endpoint // its memory has a slot per task

	free chan int       // slots
	done []chan rdma.WC // completions, by slot
	out  sync.Mutex     // of replies

	mu    sync.Mutex
	next  uint64
	files map[uint64]*served

	read, written atomic.Int64
	tasks         sync.WaitGroup
}

// A served file is open for one client.
type served struct {
	name string
	file *os.File
	up   *upload // nil if it is read
	id   uint64  // of the upload
}

// maxFiles limits the files that a client has open.
const maxFiles = 64

func newSession(ctx context.Context, srv *Server, conn net.Conn) (s *session, err error) {
	s = &session{srv: srv, conn: conn, files: map[uint64]*served{}}
	cfg := &srv.cfg
	s.end, err = endpoint.New(cfg.Device, endpoint.Config{
		Completions: 2 * cfg.Depth, Caps: rdma.QPCaps{SendWR: 2 * cfg.Depth}, Bytes: cfg.Chunk * cfg.Depth, Access: rdma.LocalWrite,
	})
	if err != nil {
		return nil, err
	}
	s.free = make(chan int, cfg.Depth)
	for i := range cfg.Depth {
		s.free <- i
		s.done = append(s.done, make(chan rdma.WC, 1))
	}
	// The client never reaches memory of the server.
	if _, err = rdma.Establish(ctx, conn, cfg.Device, s.end.QP, rdma.Options{Access: rdma.LocalWrite}); err != nil {
		return nil, errors.Join(err, s.end.Close())
	}
	return s, nil
}

// close ends the session. Tasks must have ended.
func (s *session) close() {
	for _, f := range s.files {
		s.forget(f, false)
	}
	_ = s.end.Close()
}

// run executes requests until the connection ends, which is no error.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	polled := make(chan error, 1)
	go func() {
		err := s.poll(ctx)
		cancel(err)
		s.conn.Close()
		polled <- err
	}()
	err := s.requests(ctx)
	s.tasks.Wait()
	cancel(nil)
	if perr := <-polled; !errors.Is(perr, context.Canceled) {
		err = errors.Join(perr, err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// poll gives completions to the tasks that wait for them.
func (s *session) poll(ctx context.Context) error {
	wcs := make([]rdma.WC, s.srv.cfg.Depth)
	for {
		n, err := rdma.Await(ctx, s.end.CQ, wcs)
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			if wc.ID < uint64(len(s.done)) {
				s.done[wc.ID] <- wc
			}
		}
	}
}

func (s *session) requests(ctx context.Context) error {
	r := bufio.NewReader(s.conn)
	for {
		b, err := readFrame(r)
		if err != nil {
			return err
		}
		req, err := parseRequest(b)
		if err != nil {
			return err
		}
		if req.Op != opRead && req.Op != opWrite && req.Op != opSum && req.Op != opCommit {
			if err := s.answer(s.short(&req)); err != nil {
				return err
			}
			continue
		}
		var slot int
		select {
		case slot = <-s.free: // as many tasks as slots; the client waits otherwise
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.tasks.Go(func() { s.task(ctx, &req, slot) })
	}
}

// answer sends a reply.
func (s *session) answer(r reply) error {
	if r.Status != OK {
		s.srv.cfg.Log("%v: refused: %v: %s, provider=%s", s.conn.RemoteAddr(), r.Status, r.Reason, s.srv.cfg.Device.Provider())
	}
	s.out.Lock()
	defer s.out.Unlock()
	_, err := s.conn.Write(appendReply(nil, &r))
	return err
}

// task executes a request that takes time, in a slot.
func (s *session) task(ctx context.Context, req *request, slot int) {
	r, err := s.execute(ctx, req, slot)
	if err != nil {
		r = answer(req.ID, err)
	}
	if s.srv.cfg.Trace {
		s.srv.cfg.Log("%v: %v handle=%#x off=%d len=%d: %v, provider=%s", s.conn.RemoteAddr(), req.Op, req.Handle, req.Off, req.Len, r.Status, s.srv.cfg.Device.Provider())
	}
	s.free <- slot
	if s.answer(r) != nil {
		s.conn.Close()
	}
	if r.Status == Access || r.Status == Unreached { // the queue pair has failed; the client connects again
		s.conn.Close()
	}
}

func (s *session) execute(ctx context.Context, req *request, slot int) (r reply, err error) {
	f, err := s.find(req.Handle)
	if err != nil {
		return r, err
	}
	r.ID = req.ID
	switch req.Op {
	case opSum:
		var n int64
		r.CRC, n, err = crc32c.File(ctx, f.file)
		r.Len = uint64(n)
	case opCommit:
		if f.up == nil {
			return r, refuse(Invalid, "%s was not opened to be written", f.name)
		}
		if err = f.up.commit(); err == nil {
			s.srv.cfg.Log("%v: wrote %s, %d bytes, provider=%s", s.conn.RemoteAddr(), f.name, f.up.size, s.srv.cfg.Device.Provider())
		}
	default:
		r.Len, r.CRC, err = s.move(ctx, f, req, slot)
	}
	return r, err
}

// move executes a task: one work request between the slot and the client's memory.
func (s *session) move(ctx context.Context, f *served, req *request, slot int) (uint64, uint32, error) {
	chunk := uint64(s.srv.cfg.Chunk)
	switch {
	case req.Len == 0 || req.Len > chunk:
		return 0, 0, refuse(Invalid, "a task of %d bytes must have 1 to %d", req.Len, chunk)
	case req.Off > 1<<62:
		return 0, 0, refuse(Invalid, "offset %d is too large", req.Off)
	case req.Op == opWrite && f.up == nil:
		return 0, 0, refuse(Invalid, "%s was opened to be read", f.name)
	}
	at := slot * s.srv.cfg.Chunk
	buf := s.end.Mem.Bytes[at : at+int(req.Len)]
	if req.Op == opWrite {
		return s.store(ctx, f, req, slot, buf)
	}
	n, err := f.file.ReadAt(buf, int64(req.Off))
	if err != nil && err != io.EOF {
		return 0, 0, refuse(Storage, "read %s at %d: %v", f.name, req.Off, errors.Unwrap(err))
	}
	if n == 0 {
		return 0, 0, nil
	}
	if err := s.oneSided(ctx, rdma.OpWrite, slot, n, req); err != nil {
		return 0, 0, err
	}
	s.read.Add(int64(n))
	return uint64(n), crc32c.Sum(buf[:n]), nil
}

func (s *session) store(ctx context.Context, f *served, req *request, slot int, buf []byte) (uint64, uint32, error) {
	if req.Off+req.Len > uint64(f.up.size) {
		return 0, 0, refuse(Invalid, "bytes %d to %d are behind the end of the file, %d", req.Off, req.Off+req.Len, f.up.size)
	}
	if err := s.oneSided(ctx, rdma.OpRead, slot, len(buf), req); err != nil {
		return 0, 0, err
	}
	if err := f.up.write(buf, int64(req.Off)); err != nil {
		return 0, 0, err
	}
	s.written.Add(int64(len(buf)))
	return req.Len, crc32c.Sum(buf), nil
}

// oneSided posts a work request and waits for it.
func (s *session) oneSided(ctx context.Context, o rdma.Opcode, slot, n int, req *request) error {
	wr := rdma.SendWR{
		ID: uint64(slot), Op: o, Flags: rdma.Signaled,
		SGE:        s.end.SGE(slot*s.srv.cfg.Chunk, n),
		RemoteAddr: req.Addr, RKey: req.RKey,
	}
	if err := rdma.Post(s.end.QP, wr); err != nil {
		return refuse(Unreached, "post %v: %v", o, err)
	}
	select {
	case wc := <-s.done[slot]:
		if err := wc.Err(); err != nil {
			return refuse(blame(wc.Status), "%v of %d bytes at %#x: %v", o, n, req.Addr, err)
		}
		return nil
	case <-ctx.Done():
		return refuse(Unreached, "%v: %v", o, context.Cause(ctx))
	}
}

// blame tells what the client did wrong from what happened to the connection.
func blame(s rdma.Status) Status {
	switch s {
	case rdma.RemAccessErr, rdma.RemInvReqErr, rdma.RemOpErr:
		return Access
	}
	return Unreached
}
