// Package transfer copies files and directories through GPU memory, for culvert cp.
package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/limit"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// Options say how to copy.
type Options struct {
	GPU     int
	Route   route.ID // required in both directions; None means automatic
	Require route.ID // the worst route that may be used; None allows all
	Verify  bool
	// Cache says how the copy uses the page cache: CacheAvoid fills it with nothing of
	// the source, and drops the new file when it is on stable storage.
	Cache route.CacheMode
	// Preserve keeps owner, extended attributes and all times, and the mode whatever
	// the umask or a file that is replaced; in directories hard links, too.
	Preserve bool
	Limit    *limit.Rate             // bytes per second of all copies that share it; nil means no limit
	Buffer   uint64                  // bytes of GPU memory; 0 means 64 MiB
	Advance  func(done, total int64) // called when bytes have been written, total is -1 if unknown; may be nil
	Resumed  func(bytes int64)       // called before the first of them, if an earlier copy left bytes that are used; may be nil

	temp     string      // base name of the temporary file; "" means a unique one
	keepTime bool        // keep the time of modification
	total    int64       // bytes of all files of the copy; 0: of this one
	start    int64       // where to begin: the bytes before are there
	noPart   bool        // no earlier copy left an unfinished file
	buffer   *pumpBuffer // of copies one after the other; nil: of its own

	resumeFrom int64 // the smallest file that is resumed; 0 means resumable

	// For tests.
	named bool                                        // as if the file system had no unnamed files
	step  func()                                      // called before each step that a crash can follow
	flush func(fd int, off, n int64, flags int) error // nil means sync_file_range
	// Of the files of a directory.
	apart  bool               // each is synced by itself
	syncfs func(fd int) error // nil means syncfs
}

// A Result describes a copy.
type Result struct {
	Source   string         `json:"source"`
	Dest     string         `json:"destination"`
	GPU      int            `json:"gpu"`
	Bytes    int64          `json:"bytes"`             // moved
	Resumed  int64          `json:"resumed,omitempty"` // bytes that an earlier run had copied
	Holes    int64          `json:"holes,omitempty"`   // bytes that are holes, and not moved
	Seconds  float64        `json:"seconds"`
	Read     *route.Receipt `json:"read"`
	Write    *route.Receipt `json:"write"`
	Verified bool           `json:"verified"`
	CRC32C   string         `json:"crc32c,omitempty"`
}

// String draws the path of the data and says in a sentence per direction what was moved.
func (r Result) String() string {
	name := fmt.Sprintf("gpu:%d", r.GPU)
	text := r.Read.Diagram(r.Source, name) + r.Write.Diagram(r.Dest, name) + sentences(r.Read, r.Write)
	if r.Resumed > 0 {
		text += fmt.Sprintf("resumed after %s, which are the same as in the source\n", human.Size(r.Resumed))
	}
	if r.Holes > 0 {
		text += fmt.Sprintf("holes kept=%d\n", r.Holes)
	}
	if r.Verified {
		text += fmt.Sprintf("verified crc32c=%s\n", r.CRC32C)
	}
	return text
}

// Fields is the receipts with every field, one line per direction.
func (r Result) Fields() string { return fmt.Sprintf("%v\n%v", r.Read, r.Write) }

// sentences are the receipts of a copy for people, and the change that would help most.
// What was only read has no write.
func sentences(read, write *route.Receipt) string {
	text, advice := read.Sentence()+"\n", read.Advice()
	if write != nil {
		text, advice = text+write.Sentence()+"\n", cmp.Or(advice, write.Advice())
	}
	if advice != "" {
		text += advice + "\n"
	}
	return text
}

// Copy copies the file src to dst through GPU memory. It replaces dst atomically once
// all data is on stable storage: a crash leaves the old file or the new one.
func Copy(ctx context.Context, drv *cufile.Driver, src, dst string, o Options) (Result, error) {
	in, err := atomicfile.OpenRegular(src)
	if err != nil {
		return Result{}, err
	}
	defer in.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(in.Fd()), &st); err != nil {
		return Result{}, err
	}
	dir, err := openAbove("create", dst)
	if err != nil {
		return Result{}, err
	}
	defer dir.Close()
	dir.Sweep()
	o.keepTime = true
	c := fileCopy{drv: drv, in: in, source: &st, dir: dir, name: filepath.Base(dst), opts: o}
	c.res = Result{Source: src, Dest: dst, GPU: o.GPU}
	err = c.run(ctx)
	return c.res, err
}

// openAbove opens the directory in which path is to be made.
func openAbove(op, path string) (*atomicfile.Dir, error) {
	dir, err := atomicfile.OpenDir(filepath.Dir(path))
	if err == nil {
		return dir, nil
	}
	err = &fs.PathError{Op: op, Path: path, Err: errors.Unwrap(err)}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (fix: mkdir -p %s)", err, filepath.Dir(path))
	}
	return nil, err
}

// A fileCopy copies an open file into an open directory: create makes the new file, fill
// copies the data and the attributes, settle puts it on stable storage, and then it may
// get its name.
type fileCopy struct {
	drv    *cufile.Driver
	in     *os.File
	object *object.File // the source, in place of in
	source *unix.Stat_t
	dir    *atomicfile.Dir
	name   string
	opts   Options

	attrs attributes
	out   *target
	res   Result
	dest  unix.Stat_t // the new file
}

func (c *fileCopy) run(ctx context.Context) error {
	if err := c.create(); err != nil {
		return err
	}
	if err := c.fill(ctx); err != nil {
		return err
	}
	err := c.settle(ctx, false)
	if err == nil {
		err = c.out.Commit()
	}
	return c.end(err)
}

// create makes a new file that is not visible yet.
func (c *fileCopy) create() error {
	o := &c.opts
	if o.step == nil {
		o.step = func() {}
	}
	if o.flush == nil {
		o.flush = unix.SyncFileRange
	}
	if c.object == nil {
		if err := checkSize(c.in, c.source.Size); err != nil {
			return err
		}
	}
	old, err := replaceable(c.dir, c.name, c.source)
	if err != nil {
		return err
	}
	c.attrs = attributes{source: c.source, old: old, opts: o}
	fresh, err := atomicfile.CreateIn(c.dir, c.name, atomicfile.Options{Mode: c.attrs.created(), Unnamed: !o.named, Temp: o.temp, Step: func(string) { o.step() }})
	if err != nil {
		return err
	}
	if err := c.attrs.begin(c.dir, c.name, fresh.File); err != nil {
		return errors.Join(err, fresh.Discard())
	}
	c.out = &target{File: fresh}
	return nil
}

// fill copies what is missing in the new file, and its attributes. After an error there
// is no new file.
func (c *fileCopy) fill(ctx context.Context) error {
	out, err := c.resume(ctx, c.out.File)
	if err != nil {
		if out != nil {
			err = errors.Join(err, out.Discard())
		}
		return err
	}
	c.out, c.opts.start = out, out.start
	if out.part {
		c.attrs.has = 0o600 // by adopt
	}
	err = c.checkRoom(out.File.File, out.start)
	if err == nil {
		err = fill(ctx, c.drv, c.in, out.File.File, c.source.Size, c.opts, &c.res)
	}
	if err == nil {
		err = c.finish()
	}
	if err != nil {
		return c.keep(out, full(err))
	}
	return nil
}

// finish sets the attributes of a file that has its data.
func (c *fileCopy) finish() error {
	if err := c.attrs.finish(c.in, c.out.File.File); err != nil || c.object != nil {
		return err
	}
	return unchangedSince(c.in, c.res.Source, c.source.Size, time.Unix(c.source.Mtim.Unix()))
}

// settle forces the new file to storage, unless it is there, and verifies it.
func (c *fileCopy) settle(ctx context.Context, synced bool) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !synced {
		c.opts.step()
		if err := c.out.Sync(); err != nil {
			return err
		}
	}
	if c.opts.Cache == route.CacheAvoid {
		_ = unix.Fadvise(int(c.out.Fd()), 0, 0, unix.FADV_DONTNEED) // advice, which a file system may not take
	}
	if !c.opts.Verify {
		return nil
	}
	if c.object != nil {
		return c.res.verify(ctx, c.object, c.out.File)
	}
	if err := c.res.verify(ctx, c.in, c.out.File); err != nil {
		return err
	}
	return unchangedSince(c.in, c.res.Source, c.source.Size, time.Unix(c.source.Mtim.Unix()))
}

// end closes the new file. It is removed if err says that it did not get its name.
func (c *fileCopy) end(err error) error {
	if err != nil {
		return c.keep(c.out, full(err))
	}
	return errors.Join(unix.Fstat(int(c.out.Fd()), &c.dest), c.out.Discard())
}

// unchangedSince reports a source that was written while it was copied: the copy would
// have parts of the old and of the new contents. The time of the last change of its inode
// does not count: a new name and another mode change it, too.
func unchangedSince(in *os.File, name string, size int64, modified time.Time) error {
	now, err := in.Stat()
	if err != nil {
		return err
	}
	if now.Size() != size || !now.ModTime().Equal(modified) {
		return fmt.Errorf("%s changed during the copy (fix: copy it again when it is not being written)", name)
	}
	return nil
}

// replaceable rejects a destination that is not a file, or is the source. It returns
// the file that will be replaced, or nil.
func replaceable(dir *atomicfile.Dir, name string, source *unix.Stat_t) (*unix.Stat_t, error) {
	st, err := dir.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if sameFile(st, source) {
			return nil, fmt.Errorf("%s: source and destination are the same file", dir.Path(name))
		}
		return st, nil
	case unix.S_IFLNK:
		var target unix.Stat_t
		if unix.Fstatat(int(dir.File().Fd()), name, &target, 0) == nil && sameFile(&target, source) {
			return nil, fmt.Errorf("%s: source and destination are the same file", dir.Path(name))
		}
		return nil, nil
	}
	return nil, fmt.Errorf("%s: not a regular file, so it is not replaced", dir.Path(name))
}

// A sourceFile is a regular file that is copied to something that is none.
type sourceFile struct {
	*cufile.File
	os   *os.File
	info fs.FileInfo
}

func openFile(drv *cufile.Driver, path string) (*sourceFile, error) {
	in, err := atomicfile.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	f := &sourceFile{os: in}
	if f.info, err = in.Stat(); err == nil {
		err = checkSize(in, f.info.Size())
	}
	if err == nil {
		f.File, err = drv.Register(in)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return f, nil
}

// unchanged reports a file that was written since it was opened.
func (f *sourceFile) unchanged(name string) error {
	return unchangedSince(f.os, name, f.info.Size(), f.info.ModTime())
}

func (f *sourceFile) Close() error { return errors.Join(f.File.Close(), f.os.Close()) }

func sameFile(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// checkSize rejects a file that hides its size.
func checkSize(in *os.File, size int64) error {
	if size != 0 {
		return nil
	}
	if n, _ := in.ReadAt(make([]byte, 1), 0); n > 0 {
		return fmt.Errorf("%s: size is 0 but the file has data (as in /proc); use another tool", in.Name())
	}
	return nil
}

// fill copies the data.
func fill(ctx context.Context, drv *cufile.Driver, in, out *os.File, size int64, o Options, res *Result) error {
	from, err := drv.Register(in)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := drv.Register(out)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := from.SetCache(o.Cache, o.total); err != nil {
		return err
	}
	for _, f := range []*cufile.File{from, to} {
		if err := o.require(f); err != nil {
			return err
		}
	}
	p := pump{from: from, to: to, size: size, data: &extents{fd: int(in.Fd()), size: size}, o: &o, flush: &flusher{fd: int(out.Fd()), sync: o.flush}, res: res}
	if p.whole, err = o.wholeBlocks(from); err != nil {
		return err
	}
	err = p.copy(ctx, drv)
	res.Holes = size - o.start - res.Bytes
	if err == nil && (p.whole || res.Holes > 0) {
		if err = out.Truncate(size); err != nil {
			err = fmt.Errorf("truncate %s to %d bytes: %w", res.Dest, size, errors.Unwrap(err))
		}
	}
	if err == nil && res.Holes > 0 && o.Advance != nil {
		o.Advance(size, size)
	}
	return err
}

// require sets the required routes of a file.
func (o *Options) require(f *cufile.File) error {
	switch {
	case o.Route != route.None:
		return f.Require(o.GPU, o.Route)
	case o.Require != route.None:
		return f.RequireAtLeast(o.GPU, o.Require)
	}
	return nil
}

// wholeBlocks reports whether the required routes of a file move whole blocks only.
// The last block of the file is then read and written in full, and the destination,
// which no other process has open yet, is truncated to its length.
func (o *Options) wholeBlocks(f *cufile.File) (bool, error) {
	if o.Route == route.None && o.Require == route.None {
		return false, nil
	}
	p, err := f.Plan(o.GPU)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(p.Uses, func(u route.Use) bool { return u.Block == 0 }), nil
}
