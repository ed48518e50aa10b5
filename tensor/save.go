package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// SaveOptions refine a save. The zero value is the default.
type SaveOptions struct {
	Metadata map[string]string
	// Workers is how many chunks are written at a time. 0 is 8.
	Workers int
	// Chunk is the size of a write and of what a checksum covers, a multiple of
	// 4 KiB. 0 is 4 MiB.
	Chunk int64
	// Buffer allocates the memory that a worker's chunks pass through, on a page
	// border: pinned memory makes copies from a GPU faster. nil takes ordinary
	// memory.
	Buffer func(n int) (buf []byte, free func(), err error)
	// Advance, where it is not nil, is told how many bytes of the file have been
	// written, from several goroutines.
	Advance func(done, total int64)
	// Times, where it is not nil, is told how long the steps took.
	Times *SaveTimes

	// hold is called before each step that a crash could follow.
	hold func(point string)
	// alone says that nobody else can save into this directory.
	alone bool
	// as is what errors call the file, where its own name is a temporary one.
	as string
}

const (
	defaultWorkers = 8
	// ahead is how many chunks are filled and summed while as many as Workers
	// are being written, so that storage never waits for them.
	ahead = 4
)

// SaveTimes are how long the steps of a save took, one after the other.
type SaveTimes struct {
	Reserve time.Duration // finding room on the disk
	Write   time.Duration // copying, summing and writing, side by side
	Sync    time.Duration // forcing the file to storage
	Publish time.Duration // the manifest, and both names
}

// lap adds the time since begin to a step and returns the time now.
func lap(step *time.Duration, begin time.Time) time.Time {
	now := time.Now()
	*step += now.Sub(begin)
	return now
}

// Save writes tensors into a safetensors file, and a manifest of checksums
// beside it. The data starts on a page border and is written past the page cache
// where the file system allows that. If Save fails or the machine does, path is
// what it was before, or complete; only its manifest may be missing then. If path
// is a symbolic link, all this is about the file that it leads to. opts may be nil.
func Save(ctx context.Context, path string, tensors []Source, opts *SaveOptions) (*Manifest, error) {
	o := opts.withDefaults()
	if o.Chunk < pageSize || o.Chunk%pageSize != 0 || o.Chunk > maxChunk {
		return nil, fmt.Errorf("chunks of %d bytes: want a multiple of %d up to %d", o.Chunk, pageSize, maxChunk)
	}
	stale := manifestBeside(path) // of a link, if path is one
	path, mode, err := realTarget(path)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(o.as, path)
	f, sources, header, err := arrange(tensors, o.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.Path = path
	if err := removeDead(path); err != nil {
		return nil, err
	}
	data, err := newTemp(path, false, mode, o.hold)
	if err != nil {
		return nil, err
	}
	defer data.discard()
	w := &writer{opts: o, tally: newTally(f, o.Chunk), sources: sources, header: header, out: data.File}
	if err := w.write(ctx); err != nil {
		return nil, fmt.Errorf("saving %s: %w", name, err)
	}
	m := w.tally.manifest()
	if !o.alone {
		// Two at a time could leave one's file with the other's manifest.
		unlock, err := lockDir(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	begin := time.Now()
	if err := publish(ctx, data, m, mode, stale, o.hold); err != nil {
		return nil, fmt.Errorf("saving %s: %w", name, err)
	}
	lap(&o.Times.Publish, begin)
	return m, nil
}

func (o *SaveOptions) withDefaults() SaveOptions {
	var c SaveOptions
	if o != nil {
		c = *o
	}
	if c.Workers <= 0 {
		c.Workers = defaultWorkers
	}
	if c.Chunk == 0 {
		c.Chunk = defaultChunk
	}
	if c.Buffer == nil {
		c.Buffer = mappedBuffer
	}
	if c.Times == nil {
		c.Times = &SaveTimes{}
	}
	if c.hold == nil {
		c.hold = func(string) {}
	}
	return c
}

// publish gives a written file and its manifest their names. Each step is on
// storage before the next begins: a manifest never stands beside a file that it
// does not describe, nor, as stale might, beside the link that led to the file.
func publish(ctx context.Context, data *temp, m *Manifest, mode fs.FileMode, stale string, hold func(string)) error {
	dir, mpath := filepath.Dir(data.target), manifestBeside(data.target)
	manifest, err := writeTemp(mpath, m, mode, hold)
	if err != nil {
		return err
	}
	defer manifest.discard()
	// The point of no return.
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, old := range slices.Compact([]string{stale, mpath}) {
		removed, err := removeFile(old, hold)
		if err != nil {
			return err
		}
		if removed {
			if err := syncDir(filepath.Dir(old), hold); err != nil {
				return err
			}
		}
	}
	for _, t := range []*temp{data, manifest} {
		if err := t.commit(); err != nil {
			return err
		}
		if err := syncDir(dir, hold); err != nil {
			return err
		}
	}
	return nil
}

// WriteManifest puts a manifest beside its file, replacing one that is there.
func WriteManifest(path string, m *Manifest) error {
	hold := func(string) {}
	_, mode, err := realTarget(path)
	if err != nil {
		return err
	}
	if err := removeDead(manifestBeside(path)); err != nil {
		return err
	}
	t, err := writeTemp(manifestBeside(path), m, mode, hold)
	if err != nil {
		return err
	}
	defer t.discard()
	if err := t.commit(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path), hold)
}

func writeTemp(path string, m *Manifest, mode fs.FileMode, hold func(string)) (*temp, error) {
	text, err := m.encode()
	if err != nil {
		return nil, err
	}
	t, err := newTemp(path, false, mode, hold)
	if err != nil {
		return nil, err
	}
	hold("write manifest")
	_, err = t.Write(text)
	if err == nil {
		hold("sync manifest")
		err = t.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, t.discard())
	}
	return t, nil
}

// A writer fills a temporary file.
type writer struct {
	opts    SaveOptions
	tally   *tally
	sources []Source
	header  []byte
	out     *os.File
	direct  int           // a second descriptor with O_DIRECT, or -1
	writing chan struct{} // holds one for each write under way
	written atomic.Int64
}

func (w *writer) write(ctx context.Context) error {
	size, begin := w.tally.file.Size, time.Now()
	w.opts.hold("allocate")
	if err := allocate(w.out, size); err != nil {
		return err
	}
	begin = lap(&w.opts.Times.Reserve, begin)
	w.direct = openDirect(w.out)
	if w.direct >= 0 {
		defer unix.Close(w.direct)
	}
	chunk := int(min(w.opts.Chunk, int64(alignUp(uint64(size), pageSize))))
	buffer := func() ([]byte, func(), error) { return w.opts.Buffer(chunk) }
	w.writing = make(chan struct{}, w.opts.Workers)
	err := eachChunk(ctx, int64(len(w.tally.chunks)), w.opts.Workers+ahead, buffer, w.chunk)
	if err != nil {
		return err
	}
	begin = lap(&w.opts.Times.Write, begin)
	w.opts.hold("truncate") // direct writes are whole pages
	if err := w.out.Truncate(size); err != nil {
		return err
	}
	w.opts.hold("sync")
	err = os.NewSyscallError("fdatasync", unix.Fdatasync(int(w.out.Fd())))
	lap(&w.opts.Times.Sync, begin)
	return err
}

// chunk fills and writes one chunk of the file.
func (w *writer) chunk(k int64, buf []byte) error {
	start, end := w.tally.bounds(k)
	err := w.tally.each(k, func(tensor int, from, to int64) error {
		p := buf[from-start : to-start]
		if tensor == inHeader {
			copy(p, w.header[from:to])
			return nil
		}
		info := w.tally.file.Tensors[tensor]
		if err := readFull(w.sources[tensor].Data, p, from-info.Off); err != nil {
			return fmt.Errorf("reading tensor %q at %d: %w", info.Name, from-info.Off, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.tally.add(k, buf[:end-start])
	w.writing <- struct{}{}
	defer func() { <-w.writing }()
	w.opts.hold("write")
	if err := w.put(buf, int(end-start), start); err != nil {
		return err
	}
	if done := w.written.Add(end - start); w.opts.Advance != nil {
		w.opts.Advance(done, w.tally.file.Size)
	}
	return nil
}

// put writes n bytes of buf, whole pages of it where that goes past the cache.
func (w *writer) put(buf []byte, n int, off int64) error {
	if w.direct >= 0 {
		pages := buf[:alignUp(uint64(n), pageSize)]
		clear(pages[n:])
		err := pwriteFull(w.direct, pages, off)
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
		// The device wants more than pages, or the caller's buffer is less.
	}
	return pwriteFull(int(w.out.Fd()), buf[:n], off)
}
