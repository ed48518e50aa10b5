package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/atomicfile"
)

// TreeOptions say how to copy a directory.
type TreeOptions struct {
	Options
	Jobs  int   // files to copy in parallel; 0 means 4
	Watch Watch // receives progress; may be nil
}

// A Watch receives the progress of a copy, from several goroutines.
type Watch interface {
	Began(f *TreeFile)
	Resumed(f *TreeFile, bytes int64) // an earlier copy left so many, which are used
	Advanced(f *TreeFile, done int64)
	Filled(f *TreeFile) // all bytes are written, and the file waits for its name
	Ended(f *TreeFile, res *Result, err error)
}

// watched runs the copy of a file and reports it.
func (o *TreeOptions) watched(f *TreeFile, copy func(o Options) (*Result, error)) (*Result, error) {
	one := o.Options
	if o.Watch == nil {
		return copy(one)
	}
	o.Watch.Began(f)
	one.Advance = func(done, _ int64) { o.Watch.Advanced(f, done) }
	res, err := copy(one)
	o.Watch.Ended(f, res, err)
	return res, err
}

const defaultJobs = 4

// setCalls sets the calls that tests replace.
func (o *TreeOptions) setCalls() {
	if o.step == nil {
		o.step = func() {}
	}
	if o.syncfs == nil {
		o.syncfs = unix.Syncfs
	}
}

// A treeCopy is a running copy.
type treeCopy struct {
	tree    *Tree
	drv     *cufile.Driver
	opts    TreeOptions
	src     *atomicfile.Dir
	dst     *atomicfile.Dir
	dirs    dirPairs
	parts   map[string]bool // directories with unfinished files of earlier copies
	journal *journal
	packMem chan gpu.Span // idle memory of packs
	groups  *publisher
	writer  *groupWriter

	mu     sync.Mutex
	res    TreeResult
	errs   []error
	failed map[string]bool // files by path
}

// Copy copies the files of the tree in parallel. A file that cannot be copied does
// not stop the others. The journal lists complete files, which a rerun skips; it is
// removed at the end.
func (t *Tree) Copy(ctx context.Context, drv *cufile.Driver, o TreeOptions) (*TreeResult, error) {
	_, _, o.total, _ = t.Totals()
	o.setCalls()
	if o.Jobs <= 0 {
		o.Jobs = defaultJobs
	}
	c := &treeCopy{tree: t, drv: drv, opts: o, failed: map[string]bool{}, errs: slices.Clone(t.errs), parts: map[string]bool{}}
	c.packMem = make(chan gpu.Span, o.Jobs)
	c.groups = newPublisher(groupLimit(descriptors()))
	c.res = TreeResult{
		Source: t.Source, Dest: t.Dest, GPU: o.GPU, Skipped: t.Skipped, Same: t.Unchanged,
	}
	c.res.Read, c.res.Write = receipts(drv)
	start := time.Now()
	go reserveDescriptors(2 * c.groups.most)
	err := c.run(ctx)
	c.res.took(time.Since(start))
	c.res.Verified = o.Verify && err == nil
	return &c.res, err
}

func (c *treeCopy) run(ctx context.Context) (err error) {
	if c.src, err = c.tree.openSource(); err != nil {
		return err
	}
	defer c.src.Close()
	// The destination comes first: the journal is in it.
	if c.dst, err = c.openDest(); err != nil {
		return err
	}
	defer c.dst.Close()
	c.dirs = dirPairs{src: c.src, dst: c.dst, open: map[string]*dirPair{}}
	c.opts.step()
	c.journal, err = openJournal(c.dst, c.tree.source)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.journal.close(err == nil))
		if err == nil {
			err = c.finishRoot()
		}
	}()
	if err := c.makeDirs(); err != nil {
		return err
	}
	c.clean()
	c.reserveLines()
	c.copyFiles(ctx)
	if !c.full() {
		c.copyLinks(ctx, c.tree.Links, c.copyLink, &c.res.Links)
		c.copyLinks(ctx, c.tree.Hard, c.copyHardLink, &c.res.Hard)
	}
	err = c.outcome(ctx)
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, c.finishDirs(err == nil))
}

// reserveLines makes room in the journal for the next group.
func (c *treeCopy) reserveLines() {
	c.mu.Lock()
	left := len(c.tree.Files) - c.res.Files - c.res.Done - len(c.failed)
	c.mu.Unlock()
	c.journal.reserve(min(left, c.groups.most))
}

// openDest opens the destination, and creates it if the plan says so. One that the
// copy creates is not followed if it is a symbolic link by then.
func (c *treeCopy) openDest() (*atomicfile.Dir, error) {
	if len(c.tree.Dirs) == 0 || c.tree.Dirs[0].Path != "." {
		return atomicfile.OpenDir(c.tree.Dest)
	}
	path := filepath.Clean(c.tree.Dest)
	above, err := openAbove("mkdir", path)
	if err != nil {
		return nil, err
	}
	defer above.Close()
	c.opts.step()
	if err := above.Mkdir(filepath.Base(path), whileCopying(&c.tree.Dirs[0])); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	dir, err := above.Open(filepath.Base(path))
	if err != nil {
		return nil, err
	}
	return dir, above.Sync()
}

// whileCopying is the mode of a directory to which files are copied, before the umask.
func whileCopying(d *TreeDir) fs.FileMode { return fs.FileMode(d.stat.Mode&permissions | 0o700) }

// makeDirs creates the directories, writable for the owner while files are copied.
func (c *treeCopy) makeDirs() error {
	for i := range c.tree.Dirs {
		d := &c.tree.Dirs[i]
		c.opts.step()
		if err := c.journal.write(journalLine{Made: d.Path}); err != nil {
			return err
		}
		c.opts.step()
		if d.Path == "." {
			continue // openDest did
		}
		if err := c.dst.Mkdir(d.Path, whileCopying(d)); err != nil && !errors.Is(err, os.ErrExist) {
			c.errs = append(c.errs, err)
		}
	}
	return nil
}

// finishDirs sets the attributes of the directories, the innermost first: a mode may
// exclude the owner, and a new name changes the times of its directory. It syncs those
// that got an entry, many at a time: files synced theirs.
func (c *treeCopy) finishDirs(complete bool) error {
	changed := map[string]bool{}
	for _, d := range c.tree.all {
		if d.ours {
			changed[d.Path], changed[filepath.Dir(d.Path)] = true, true
		}
	}
	for _, list := range [][]TreeLink{c.tree.Links, c.tree.Hard} {
		for _, l := range list {
			changed[filepath.Dir(l.Path)] = true
		}
	}
	var list []*finishedDir
	for _, d := range slices.Backward(c.tree.all) {
		if !complete {
			d.stat.Mode |= 0o700 // a rerun resumes
		}
		list = append(list, &finishedDir{TreeDir: d, changed: changed[d.Path], set: d.Path != "."})
	}
	var errs []error
	for batch := range slices.Chunk(list, c.groups.most) {
		errs = append(errs, c.finishSome(batch))
	}
	if !complete {
		return nil
	}
	return errors.Join(errs...)
}

// A finishedDir is a directory that gets no more entries.
type finishedDir struct {
	TreeDir
	changed bool // it got one
	set     bool // it gets its attributes
	dir     *atomicfile.Dir
	err     error
}

// finishSome sets the attributes of some directories, one after the other, and then syncs
// them at once.
func (c *treeCopy) finishSome(list []*finishedDir) error {
	for _, d := range list {
		if d.set = d.set && (d.ours || c.opts.Preserve); !d.set && !d.changed {
			continue
		}
		if d.dir, d.err = c.dst.Open(d.Path); d.err == nil && d.set {
			d.err = c.setAttributes(&d.TreeDir, d.dir)
		}
	}
	atOnce(list, func(d *finishedDir) {
		if d.dir == nil {
			return
		}
		if d.err == nil {
			d.err = d.dir.Sync()
		}
		d.dir.Close()
	})
	var errs []error
	for _, d := range list {
		errs = append(errs, d.err)
	}
	return errors.Join(errs...)
}

func (c *treeCopy) setAttributes(d *TreeDir, dir *atomicfile.Dir) error {
	if c.opts.Preserve {
		from, err := c.src.Open(d.Path)
		if err != nil {
			return err
		}
		defer from.Close()
		return preserve(from.File(), dir.File(), &d.stat)
	}
	// The mode was that of the source without what the umask takes, and with what
	// the owner needs. A set-group-ID bit is inherited.
	fd := int(dir.File().Fd())
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	mode := now.Mode & (d.stat.Mode | ^uint32(permissions)) & allModes
	if mode == now.Mode&allModes {
		return nil
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, mode))
}

// finishRoot does the same for the destination once the journal is removed.
func (c *treeCopy) finishRoot() error {
	return c.finishSome([]*finishedDir{{TreeDir: c.tree.all[0], changed: true, set: true}})
}

// clean removes temporary files of killed copies: those with the journal's ID, and
// others that no process is writing. A directory that cannot be opened is reported
// by the files that are copied there.
func (c *treeCopy) clean() {
	for _, d := range c.tree.all {
		if dir, err := c.dst.Open(d.Path); err == nil {
			c.parts[d.Path] = c.cleanDir(dir)
			dir.Close()
		}
	}
}

// cleanDir cleans a directory, and reports whether it has unfinished files.
func (c *treeCopy) cleanDir(dir *atomicfile.Dir) (parts bool) {
	dir.Sweep()
	list, _ := dir.Names(".")
	for _, name := range list {
		if strings.HasPrefix(name, c.journal.mark()) {
			_ = dir.Remove(name)
		}
		parts = parts || atomicfile.IsPart(name)
	}
	return parts
}

func (c *treeCopy) copyFiles(ctx context.Context) {
	c.writer = &groupWriter{dst: c.dst, opts: &c.opts, record: c.record, ended: c.published}
	go c.groups.run(func(group []*waiting) { c.writer.publish(ctx, group) })
	var g errgroup.Group
	g.SetLimit(c.opts.Jobs)
	for _, unit := range c.units() {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if c.full() {
				return nil
			}
			c.copyUnit(ctx, unit)
			return nil
		})
	}
	_ = g.Wait() // errors are in c.errs
	c.groups.stop()
	if err := c.freePackMemory(); err != nil {
		c.errs = append(c.errs, err)
	}
}

// units are what one job copies at a time. Jobs that fill packs leave descriptors for the
// groups that wait.
func (c *treeCopy) units() [][]*TreeFile {
	packable := func(f *TreeFile) bool { return !f.Done && c.opts.packable(f.Size) }
	most := max(1, min(packFiles, c.groups.most/(2*c.opts.Jobs)))
	return units(c.tree.Files, packable, most, c.opts.Limit.Largest(packBytes, gpuPage))
}

func (c *treeCopy) copyUnit(ctx context.Context, unit []*TreeFile) {
	switch f := unit[0]; {
	case !f.Done && c.opts.packable(f.Size):
		c.copyPack(ctx, unit)
	case f.Done && c.stillDone(ctx, f):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.res.Done++
	default:
		if w := c.begin(f); w != nil {
			c.fillApart(ctx, w)
		}
	}
}

// full reports whether the file system of the destination is: then the files that are left
// would fail as well.
func (c *treeCopy) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.errs, func(err error) bool { return errors.Is(err, unix.ENOSPC) })
}

// stillDone reports whether a file that an earlier run finished need not be copied
// again. The journal says so; with --verify both files are read.
func (c *treeCopy) stillDone(ctx context.Context, f *TreeFile) bool {
	if !c.opts.Verify {
		return true
	}
	return bothOpen(c.src, c.dst, f.Path, func(in, out *os.File) bool {
		return new(Result).verify(ctx, in, out) == nil
	})
}

// begin opens a file and creates the new one. It returns nil if that failed.
func (c *treeCopy) begin(f *TreeFile) *waiting {
	c.opts.step()
	if c.opts.Watch != nil {
		c.opts.Watch.Began(f)
	}
	w, err := c.open(f)
	if err == nil {
		if err = w.create(); err == nil {
			return w
		}
		w.in.Close()
		c.dirs.release(w.pair)
	}
	c.ended(f, nil, err)
	return nil
}

// open opens a file and its directory.
func (c *treeCopy) open(f *TreeFile) (*waiting, error) {
	dir, name := filepath.Split(f.Path)
	dir = filepath.Clean(dir)
	pair, err := c.dirs.take(dir)
	if err != nil {
		return nil, err
	}
	in, st, err := pair.src.OpenRegular(name)
	if err != nil {
		c.dirs.release(pair)
		return nil, err
	}
	o := c.opts.Options
	o.temp, o.keepTime, o.noPart = c.journal.temp(f.Path), true, !c.parts[dir]
	if c.opts.Watch != nil {
		o.Advance = func(done, _ int64) { c.opts.Watch.Advanced(f, done) }
		o.Resumed = func(bytes int64) { c.opts.Watch.Resumed(f, bytes) }
	}
	one := &fileCopy{drv: c.drv, in: in, source: st, dir: pair.dst, name: name, opts: o}
	one.res = Result{Source: c.src.Path(f.Path), Dest: c.dst.Path(f.Path), GPU: o.GPU}
	return &waiting{fileCopy: one, file: f, pair: pair}, nil
}

// fillApart copies a file by itself.
func (c *treeCopy) fillApart(ctx context.Context, w *waiting) {
	if err := w.fill(ctx); err != nil {
		c.forget(w, err)
		return
	}
	c.filled(ctx, w)
}

// filled hands a file over to be published. A large one does not wait for others.
func (c *treeCopy) filled(ctx context.Context, w *waiting) {
	if w.err != nil {
		c.forget(w, w.end(w.err))
		return
	}
	if !w.opts.Verify {
		w.in.Close()
	}
	if c.opts.Watch != nil {
		c.opts.Watch.Filled(w.file)
	}
	if w.out.part {
		c.writer.publish(ctx, []*waiting{w})
		return
	}
	c.groups.files <- w
}

// published ends a file that has its name, or could not get it.
func (c *treeCopy) published(w *waiting) {
	w.in.Close()
	c.dirs.release(w.pair)
	c.ended(w.file, &w.res, w.err)
}

// forget ends a file that is not published.
func (c *treeCopy) forget(w *waiting, err error) {
	w.in.Close()
	c.dirs.release(w.pair)
	c.ended(w.file, nil, err)
}

// ended counts a file.
func (c *treeCopy) ended(f *TreeFile, res *Result, err error) {
	if c.opts.Watch != nil {
		c.opts.Watch.Ended(f, res, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed[f.Path] = true
		c.errs = append(c.errs, about(f.Path, err))
		return
	}
	c.res.add(res)
}

// about adds the path to the error of a file, unless it has it.
func about(path string, err error) error {
	if strings.Contains(err.Error(), string(filepath.Separator)+path) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// copyLinks creates links, each atomically, and counts them.
func (c *treeCopy) copyLinks(ctx context.Context, list []TreeLink, copy func(*TreeLink) error, count *int) {
	for _, l := range list {
		if ctx.Err() != nil {
			return
		}
		if err := copy(&l); err != nil {
			c.errs = append(c.errs, about(l.Path, err))
			continue
		}
		*count++
	}
}

// copyLink creates a symbolic link.
func (c *treeCopy) copyLink(l *TreeLink) error {
	dir, err := c.dst.Open(filepath.Dir(l.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(l.Path)
	err = atomicfile.SymlinkIn(dir, l.Target, name, c.journal.linkTemp(l.Path), func(string) { c.opts.step() })
	if err == nil && c.opts.Preserve {
		err = preserveLink(dir, name, l.stat)
	}
	return err
}

// copyHardLink gives a file another name.
func (c *treeCopy) copyHardLink(l *TreeLink) error {
	if c.failed[l.Target] {
		return fmt.Errorf("hard link to %s, which was not copied", l.Target)
	}
	first, err := c.dst.Stat(l.Target)
	if err != nil {
		return err
	}
	dir, err := c.dst.Open(filepath.Dir(l.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name, temp := filepath.Base(l.Path), c.journal.linkTemp(l.Path)
	old, err := replaceable(dir, name, l.stat)
	if err != nil || old != nil && sameFile(old, first) {
		return err
	}
	rel := filepath.Join(filepath.Dir(l.Path), temp)
	c.opts.step()
	if err := errors.Join(dir.Remove(temp), c.dst.Link(l.Target, rel)); err != nil {
		return err
	}
	c.opts.step()
	return errors.Join(dir.Rename(temp, name), dir.Remove(temp))
}

// maxErrors limits the errors that are reported: a full disk has one for each file.
const maxErrors = 5

// outcome returns nil if everything was copied.
func (c *treeCopy) outcome(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := ctx.Err()
	if err == nil && len(c.errs) > 0 {
		list := c.errs[:min(len(c.errs), maxErrors)]
		if n := len(c.errs) - len(list); n > 0 {
			list = append(list[:len(list):len(list)], fmt.Errorf("and %d more errors", n))
		}
		err = errors.Join(list...)
	}
	if err == nil {
		return nil
	}
	return &StoppedError{c.res.Files + c.res.Done, len(c.tree.Files), err}
}
