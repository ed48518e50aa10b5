package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
)

// A File is a file of the server that is read, or an upload.
type File struct {
	c      *Client
	name   string
	upload bool
	size   int64
	tag    uint64
	chunk  uint64

	mu     sync.Mutex
	handle uint64
	of     *link // to which the handle belongs
}

// Open opens a file for reading.
func (c *Client) Open(ctx context.Context, name string) (*File, error) {
	f := &File{c: c, name: name}
	r, err := f.first(ctx, request{Op: opOpen, Name: name})
	if err != nil {
		return nil, err
	}
	f.size, f.tag = int64(r.Len), r.Tag
	return f, nil
}

// Create begins to write a file of a known size. It gets its name by Commit.
func (c *Client) Create(ctx context.Context, name string, size int64) (*File, error) {
	f := &File{c: c, name: name, upload: true, size: size}
	_, err := f.first(ctx, request{Op: opCreate, Name: name, Len: uint64(size)})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// first sends the request that opens the file.
func (f *File) first(ctx context.Context, req request) (reply, error) {
	if len(f.name) == 0 || len(f.name) > maxName {
		return reply{}, &Error{Op: req.Op.String(), Name: f.name, Status: Invalid, Reason: fmt.Sprintf("a name must have 1 to %d bytes", maxName)}
	}
	r, err := f.c.do(ctx, func(_ context.Context, l *link) (*request, error) {
		f.of = l
		return &req, nil
	})
	if err == nil {
		err = fail(r, req.Op, f.name)
	}
	if err != nil {
		return r, err
	}
	f.handle, f.chunk = r.Handle, uint64(r.Chunk)
	if own := uint64(f.c.cfg.Chunk); own != 0 && own < f.chunk {
		f.chunk = own
	}
	if f.chunk == 0 {
		return r, &Error{Op: req.Op.String(), Name: f.name, Status: Invalid, Reason: "the server allows tasks of 0 bytes"}
	}
	return r, nil
}

// Name is the name at the server.
func (f *File) Name() string { return f.name }

// Size is the size in bytes.
func (f *File) Size() int64 { return f.size }

// on returns the handle of the file on a connection, and opens it there if necessary.
func (f *File) on(ctx context.Context, l *link) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == l {
		return f.handle, nil
	}
	req := &request{Op: opOpen, Name: f.name}
	if f.upload {
		req = &request{Op: opResume, Handle: f.handle}
	}
	r, err := l.call(ctx, req)
	if err == nil {
		err = fail(r, req.Op, f.name)
	}
	if err != nil {
		return 0, err
	}
	if !f.upload && (r.Tag != f.tag || int64(r.Len) != f.size) {
		return 0, &Error{Op: "read", Name: f.name, Status: Changed, Reason: "the server has another version now (fix: start again)"}
	}
	f.of, f.handle = l, r.Handle
	return f.handle, nil
}

// Move fills memory from the file at off, or writes it there; which of both, the file
// decides. It returns the number of bytes: less than the memory has only at the end of a
// file that is read.
func (f *File) Move(ctx context.Context, mem Memory, off int64) (int64, error) {
	return f.move(ctx, f.upload, mem, off)
}

// move is Move in a given direction: an upload can be read back.
func (f *File) move(ctx context.Context, write bool, mem Memory, off int64) (int64, error) {
	n := int64(mem.Len())
	if !write {
		n = max(0, min(n, f.size-off))
	}
	chunk := f.chunk
	if most := mem.most(); most != 0 {
		chunk = min(chunk, most)
	}
	g, tasks := errgroup.WithContext(ctx)
	g.SetLimit(f.c.cfg.Depth)
	for at := uint64(0); at < uint64(n) && tasks.Err() == nil; at += chunk {
		length := min(chunk, uint64(n)-at)
		g.Go(func() error { return f.task(tasks, write, mem, at, length, uint64(off)+at) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return n, context.Cause(ctx)
}

// task moves n bytes of the memory.
func (f *File) task(ctx context.Context, write bool, mem Memory, at, n, off uint64) error {
	what := opRead
	if write {
		what = opWrite
	}
	key, done, err := mem.lend(ctx, at, n, write)
	if err != nil {
		return err
	}
	r, err := f.do(ctx, request{Op: what, Off: off, Len: n, Addr: key.Addr, RKey: key.RKey})
	if err == nil && r.Len != n {
		err = &Error{Op: what.String(), Name: f.name, Status: Changed, Reason: fmt.Sprintf("%d of %d bytes at offset %d", r.Len, n, off)}
	}
	return errors.Join(err, done(err == nil))
}

// do sends a request that is about the file.
func (f *File) do(ctx context.Context, req request) (reply, error) {
	r, err := f.c.do(ctx, func(ctx context.Context, l *link) (*request, error) {
		var err error
		req.Handle, err = f.on(ctx, l)
		return &req, err
	})
	if err == nil {
		err = fail(r, req.Op, f.name)
	}
	return r, err
}

// Sum is the CRC-32C of the file at the server, which reads it again.
func (f *File) Sum(ctx context.Context) (uint32, error) {
	r, err := f.do(ctx, request{Op: opSum})
	if err == nil && int64(r.Len) != f.size {
		err = &Error{Op: "sum", Name: f.name, Status: Changed, Reason: fmt.Sprintf("it has %d bytes, not %d", r.Len, f.size)}
	}
	return r.CRC, err
}

// Commit publishes an upload: it has its name and is on stable storage.
func (f *File) Commit(ctx context.Context) error {
	_, err := f.do(ctx, request{Op: opCommit})
	return err
}

// Close closes the file. An upload that was not committed is removed. For a file that
// was read, it returns an error if the file changed meanwhile.
func (f *File) Close(ctx context.Context) error {
	r, err := f.do(ctx, request{Op: opClose})
	if err == nil && !f.upload && r.Tag != f.tag {
		err = &Error{Op: "close", Name: f.name, Status: Changed, Reason: "it changed while it was read"}
	}
	return err
}
