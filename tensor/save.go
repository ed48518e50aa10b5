package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// SaveOptions refine a save. The zero value is the default.
type SaveOptions struct {
	Metadata map[string]string // of the header, which has none if it is nil
	// Chunk is the size of a write and of what a checksum covers, a multiple of
	// 4 KiB. 0 is 4 MiB.
	Chunk int64
	// Buffer allocates a worker's buffer on a page boundary. nil is pinned memory
	// if a source is in GPU memory, and ordinary memory otherwise.
	Buffer func(n int) (buf []byte, free func(), err error)
	// Advance is called with the bytes written so far, from several goroutines. It
	// may be nil.
	Advance func(done, total int64)
	// Mode is that of a new file, before the umask. 0 is 0644. A file that is replaced
	// keeps its mode.
	Mode fs.FileMode
	// Times receives the duration of each step. It may be nil.
	Times *SaveTimes
	// Origin receives what the upload to an object store took. It may be nil.
	Origin *route.Origin

	workers int               // chunks that are written at a time; 0 is 8
	step    func(name string) // called before each step that a crash can follow
	alone   bool              // no other process can save into this directory
	fresh   bool              // there must be no object at the URL
	as      string            // the file's name in errors, if its own is temporary
}

const (
	defaultWorkers = 8
	// While workers write, this many more chunks are filled and summed, so that
	// storage never waits for them.
	ahead = 4
)

// SaveTimes are the durations of the steps of a save, one after the other.
type SaveTimes struct {
	Reserve time.Duration // reserving space on the disk
	Write   time.Duration // copying, summing and writing, concurrently
	Sync    time.Duration // forcing the file to storage
	Publish time.Duration // the manifest, and both renames
}

// lap adds the time since begin to a step and returns the time now.
func lap(step *time.Duration, begin time.Time) time.Time {
	now := time.Now()
	*step += now.Sub(begin)
	return now
}

// Save writes tensors to a safetensors file, and a manifest of checksums beside it.
// The data starts on a page boundary and bypasses the page cache where the file
// system allows that. At every moment, and after an error or a crash, path is the
// old file or the complete new one, and its manifest describes it. If path is a
// symbolic link, Save replaces the file that it points to. opts may be nil.
//
// path may be the URL of an object, s3://BUCKET/KEY, if the program imports package
// object. The object then appears as a whole, after its last byte; opts.Chunk does not
// count.
func Save(ctx context.Context, path string, tensors []Source, opts *SaveOptions) (*Manifest, error) {
	o := opts.withDefaults(tensors)
	if o.Chunk < pageSize || o.Chunk%pageSize != 0 || o.Chunk > maxChunk {
		return nil, fmt.Errorf("chunk size %d must be a multiple of %d up to %d", o.Chunk, pageSize, maxChunk)
	}
	if object.IsURL(path) {
		return saveObject(ctx, path, tensors, o)
	}
	link := path
	path, mode, err := realTarget(path, o.Mode)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(o.as, path)
	f, sources, header, err := arrange(tensors, o.Metadata)
	if fe, ok := errors.AsType[*FormatError](err); ok {
		fe.File = name
		return nil, fe
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.Path = path
	atomicfile.Sweep(filepath.Dir(path))
	data, err := atomicfile.Create(path, atomicfile.Options{Mode: mode, Step: o.step})
	if err != nil {
		return nil, err
	}
	defer data.Discard()
	w := &writer{opts: o, sums: newChunkSums(f, o.Chunk), sources: sources, header: header, out: data.File}
	if err := w.write(ctx); err != nil {
		// The name of the temporary file means nothing to a user.
		if pe, ok := err.(*fs.PathError); ok {
			err = os.NewSyscallError(pe.Op, pe.Err)
		}
		return nil, fmt.Errorf("saving %s: %w", name, err)
	}
	m := w.sums.manifest()
	begin := time.Now()
	p := publisher{data: data, link: link, path: path, mode: mode, alone: o.alone, step: o.step}
	if err := p.publish(ctx, m); err != nil {
		return nil, fmt.Errorf("saving %s: %w", name, err)
	}
	lap(&o.Times.Publish, begin)
	return m, nil
}

func (o *SaveOptions) withDefaults(tensors []Source) SaveOptions {
	var c SaveOptions
	if o != nil {
		c = *o
	}
	if c.workers <= 0 {
		c.workers = defaultWorkers
	}
	c.Chunk = cmp.Or(c.Chunk, defaultChunk)
	c.Mode = cmp.Or(c.Mode, 0o644)
	if c.Buffer == nil {
		c.Buffer = bufferFor(tensors)
	}
	if c.Times == nil {
		c.Times = &SaveTimes{}
	}
	if c.Origin == nil {
		c.Origin = &route.Origin{}
	}
	if c.step == nil {
		c.step = func(string) {}
	}
	return c
}

// bufferFor returns how to allocate buffers for these sources.
func bufferFor(tensors []Source) func(n int) ([]byte, func(), error) {
	for _, t := range tensors {
		if d, ok := t.Data.(deviceBytes); ok {
			return func(n int) ([]byte, func(), error) { return pinnedBuffer(d.dev, n) }
		}
	}
	return mappedBuffer
}

// realTarget follows a symbolic link, so that Save replaces the file and not the
// link, and returns the mode of the new file.
func realTarget(path string, mode fs.FileMode) (string, fs.FileMode, error) {
	real, err := atomicfile.RealPath(path)
	var st fs.FileInfo
	if err == nil {
		st, err = os.Lstat(real)
	}
	if errors.Is(err, fs.ErrNotExist) {
		path, err = realParent(path) // of a new file, or of a link to no file, which is replaced
		return path, mode, err
	}
	if err != nil {
		return "", 0, err
	}
	if !st.Mode().IsRegular() {
		return "", 0, fmt.Errorf("%s: not a regular file", path)
	}
	return real, st.Mode().Perm(), nil
}

// realParent returns a path of the same file from whose text its directory can be told:
// behind a symbolic link ".." leads elsewhere.
func realParent(path string) (string, error) {
	dir, name := filepath.Split(path)
	if !strings.Contains(dir, "..") {
		return path, nil
	}
	real, err := atomicfile.RealPath(dir)
	return filepath.Join(real, name), err
}

// A writer fills a temporary file.
type writer struct {
	opts    SaveOptions
	sums    *chunkSums
	sources []Source
	header  []byte
	out     *os.File
	direct  *os.File      // the same file with O_DIRECT, or nil
	writing chan struct{} // has one for each write in flight
	written atomic.Int64
}

func (w *writer) write(ctx context.Context) error {
	size, begin := w.sums.file.Size, time.Now()
	w.opts.step("allocate")
	if err := reserve(w.out, size); err != nil {
		return err
	}
	begin = lap(&w.opts.Times.Reserve, begin)
	if w.direct = openDirect(w.out); w.direct != nil {
		defer w.direct.Close()
	}
	chunk := int(min(w.opts.Chunk, int64(alignUp(uint64(size), pageSize))))
	buffer := func() ([]byte, func(), error) { return w.opts.Buffer(chunk) }
	w.writing = make(chan struct{}, w.opts.workers)
	err := eachChunk(ctx, int64(len(w.sums.chunks)), w.opts.workers+ahead, buffer, w.chunk)
	if err != nil {
		return err
	}
	begin = lap(&w.opts.Times.Write, begin)
	w.opts.step("truncate") // O_DIRECT writes are whole pages
	if err := w.out.Truncate(size); err != nil {
		return err
	}
	w.opts.step("sync")
	err = w.out.Sync() // with its time, which the manifest names
	lap(&w.opts.Times.Sync, begin)
	return err
}

// chunk fills and writes one chunk of the file.
func (w *writer) chunk(k int64, buf []byte) error {
	start, end := w.sums.bounds(k)
	if err := w.fill(k, buf); err != nil {
		return err
	}
	w.writing <- struct{}{}
	defer func() { <-w.writing }()
	w.opts.step("write")
	if err := w.writeAt(buf, int(end-start), start); err != nil {
		return err
	}
	w.advance(end - start)
	return nil
}

func (w *writer) advance(n int64) {
	if done := w.written.Add(n); w.opts.Advance != nil {
		w.opts.Advance(done, w.sums.file.Size)
	}
}

// fill puts the contents of chunk k into buf and sums them.
func (w *writer) fill(k int64, buf []byte) error {
	start, end := w.sums.bounds(k)
	err := w.sums.each(k, func(tensor int, from, to int64) error {
		p := buf[from-start : to-start]
		if tensor == inHeader {
			copy(p, w.header[from:to])
			return nil
		}
		info := w.sums.file.Tensors[tensor]
		if err := readFull(w.sources[tensor].Data, p, from-info.Off); err != nil {
			return fmt.Errorf("reading tensor %q at %d: %w", info.Name, from-info.Off, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.sums.add(k, buf[:end-start])
	return nil
}

// writeAt writes n bytes of buf, with O_DIRECT as whole pages.
func (w *writer) writeAt(buf []byte, n int, off int64) error {
	if w.direct != nil {
		pages := buf[:alignUp(uint64(n), pageSize)]
		clear(pages[n:])
		_, err := w.direct.WriteAt(pages, off)
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
		// The device needs a coarser alignment, or the caller's buffer is not aligned.
	}
	_, err := w.out.WriteAt(buf[:n], off)
	return err
}
