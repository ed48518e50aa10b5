package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A target is one file or object that is measured.
type target struct {
	name   string
	file   *os.File // nil if it is an object
	st     *storage.File
	object *object.File // nil if it is a file
	size   int64
}

func openFile(name string, flags int) (*target, error) {
	// Checked first: opening a pipe would wait for its writer.
	if st, err := os.Stat(name); err == nil && st.Mode()&os.ModeNamedPipe != 0 {
		return nil, fmt.Errorf("%s: %w", name, storage.ErrFileType)
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	t := &target{name: name, file: f}
	if t.st, err = storage.Adopt(int(f.Fd())); err == nil {
		t.size, err = t.st.Size()
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func openObject(ctx context.Context, url string) (*target, error) {
	o, err := object.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return &target{name: o.Name(), object: o, size: o.Info().Size}, nil
}

func (t *target) close() error {
	if t.object != nil {
		return t.object.Close()
	}
	if t.st != nil {
		t.st.Close()
	}
	return t.file.Close()
}

// warm reads a file once. Objects are in no cache of this host.
func (t *target) warm() error {
	if t.object != nil {
		return nil
	}
	// io.Discard itself would read in small steps.
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.NewSectionReader(cached{t.st}, 0, t.size), make([]byte, 4<<20))
	return err
}

// register opens the file or object for transfers.
func (t *target) register(drv *cufile.Driver) (*cufile.File, error) {
	if t.object != nil {
		return drv.RegisterSource(t.object)
	}
	return drv.Register(t.file)
}

// contents are the bytes to compare with.
func (t *target) contents() io.ReaderAt {
	if t.object != nil {
		return t.object
	}
	return cached{t.st}
}

// resident returns how many bytes are in the page cache; -1 if that is unknown. A cold file
// that is not cold is an error.
func (t *target) resident(cold bool) (int64, error) {
	if t.object != nil {
		return -1, nil
	}
	if cold {
		if err := t.st.DropCache(); err != nil {
			return 0, err
		}
	}
	n, err := t.st.Resident(0, t.size)
	if err != nil || t.size == 0 {
		return -1, nil
	}
	if share := float64(n) / float64(t.size); cold && share > 0.01 {
		return 0, fmt.Errorf("%s: cold run not possible: %.0f%% of the file is still in the page cache (in use elsewhere, or on tmpfs)", t.name, 100*share)
	}
	return n, nil
}

// move is the blockIO of one file or object.
func (t *target) move(dir route.Dir, p []byte, off int64) (int64, error) {
	if t.object != nil { // one request, as a program makes it that only reads
		n, err := t.object.Get(p, off)
		return int64(n), err
	}
	return fileIO(t.file, dir, p, off)
}

// cached reads a file through the page cache, even if it was opened with O_DIRECT.
type cached struct{ st *storage.File }

func (c cached) ReadAt(p []byte, off int64) (int, error) {
	fd := c.st.Buffered()
	if fd < 0 {
		fd = c.st.FD()
	}
	return transferAll(unix.Pread, fd, c.st.Name, p, off)
}

// stripe returns where an offset is if n files take turns by blocks: callers that go through
// such a sequence load all files alike, however many callers there are.
func stripe(n int, off, block int64) (file int, at int64) {
	if n == 1 {
		return 0, off
	}
	number := off / block
	return int(number % int64(n)), number/int64(n)*block + off%block
}

// striped are files that take turns by blocks.
type striped struct {
	targets []*target
	block   int64
}

func (s striped) ReadAt(p []byte, off int64) (int, error) {
	i, at := stripe(len(s.targets), off, s.block)
	return s.targets[i].contents().ReadAt(p, at)
}

// where names an offset for messages.
func (s striped) where(off int64) string {
	i, at := stripe(len(s.targets), off, s.block)
	return fmt.Sprintf("offset %d of %s", at, s.targets[i].name)
}
