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

	"github.com/culvert-io/culvert/internal/atomicfile"
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

	// step is called before each step that a crash can follow.
	step func(name string)
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
	atomicfile.Sweep(path)
	data, err := atomicfile.Create(path, atomicfile.Options{Mode: mode, Step: o.step})
	if err != nil {
		return nil, err
	}
	defer data.Discard()
	w := &writer{opts: o, sums: newChunkSums(f, o.Chunk), sources: sources, header: header, out: data.File}
	if err := w.write(ctx); err != nil {
		return nil, fmt.Errorf("saving %s: %w", name, err)
	}
	m := w.sums.manifest()
	if !o.alone {
		// Two at a time could leave one's file with the other's manifest.
		unlock, err := atomicfile.LockDir(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	begin := time.Now()
	if err := publish(ctx, data, path, m, mode, stale, o.step); err != nil {
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
	if c.step == nil {
		c.step = func(string) {}
	}
	return c
}

// publish gives a written file and its manifest their names. Each step is on
// storage before the next begins: a manifest never stands beside a file that it
// does not describe, nor, as stale might, beside the link that led to the file.
func publish(ctx context.Context, data *atomicfile.File, path string, m *Manifest, mode fs.FileMode, stale string, step func(string)) error {
	mpath := manifestBeside(path)
	manifest, err := atomicfile.Create(mpath, atomicfile.Options{Mode: mode, Step: step})
	if err != nil {
		return err
	}
	defer manifest.Discard()
	step("write manifest")
	if err := m.write(manifest); err != nil {
		return err
	}
	step("sync manifest")
	if err := manifest.Sync(); err != nil {
		return err
	}
	// The point of no return.
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, old := range slices.Compact([]string{stale, mpath}) {
		if err := removeFile(old, step); err != nil {
			return err
		}
	}
	for _, f := range []*atomicfile.File{data, manifest} {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// removeFile removes a file that need not exist, so that a crash does not bring it
// back.
func removeFile(path string, step func(string)) error {
	step("remove")
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path), step)
}

func syncDir(dir string, step func(string)) error {
	step("sync directory")
	return atomicfile.SyncDir(dir)
}

// realTarget follows a symbolic link, so that the file is replaced and not the
// link, and finds the mode that the new file should have.
func realTarget(path string) (string, fs.FileMode, error) {
	const mode = 0o644
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, mode, nil
	}
	if err != nil {
		return "", 0, err
	}
	st, err := os.Stat(real)
	if err != nil {
		return "", 0, err
	}
	if !st.Mode().IsRegular() {
		return "", 0, fmt.Errorf("%s: not a regular file", path)
	}
	return real, st.Mode().Perm(), nil
}

// WriteManifest puts a manifest beside its file, replacing one that is there.
func WriteManifest(path string, m *Manifest) error {
	_, mode, err := realTarget(path)
	if err != nil {
		return err
	}
	return atomicfile.Write(manifestBeside(path), mode, m.write)
}

// A writer fills a temporary file.
type writer struct {
	opts    SaveOptions
	sums    *chunkSums
	sources []Source
	header  []byte
	out     *os.File
	direct  int           // a second descriptor with O_DIRECT, or -1
	writing chan struct{} // holds one for each write under way
	written atomic.Int64
}

func (w *writer) write(ctx context.Context) error {
	size, begin := w.sums.file.Size, time.Now()
	w.opts.step("allocate")
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
	err := eachChunk(ctx, int64(len(w.sums.chunks)), w.opts.Workers+ahead, buffer, w.chunk)
	if err != nil {
		return err
	}
	begin = lap(&w.opts.Times.Write, begin)
	w.opts.step("truncate") // direct writes are whole pages
	if err := w.out.Truncate(size); err != nil {
		return err
	}
	w.opts.step("sync")
	err = os.NewSyscallError("fdatasync", unix.Fdatasync(int(w.out.Fd())))
	lap(&w.opts.Times.Sync, begin)
	return err
}

// chunk fills and writes one chunk of the file.
func (w *writer) chunk(k int64, buf []byte) error {
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
	w.writing <- struct{}{}
	defer func() { <-w.writing }()
	w.opts.step("write")
	if err := w.put(buf, int(end-start), start); err != nil {
		return err
	}
	if done := w.written.Add(end - start); w.opts.Advance != nil {
		w.opts.Advance(done, w.sums.file.Size)
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
