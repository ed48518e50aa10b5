package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
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
	Advanced(f *TreeFile, done int64)
	Ended(f *TreeFile, res *Result, err error)
}

// A TreeResult describes the copy of a directory.
type TreeResult struct {
	Source   string         `json:"source"`
	Dest     string         `json:"destination"`
	GPU      int            `json:"gpu"`
	Files    int            `json:"files"`   // copied by this run
	Done     int            `json:"done"`    // by earlier ones
	Links    int            `json:"links"`   // copied as links
	Skipped  []TreeSkip     `json:"skipped"` // not copied
	Bytes    int64          `json:"bytes"`
	Seconds  float64        `json:"seconds"`
	Read     *route.Receipt `json:"read"`
	Write    *route.Receipt `json:"write"`
	Verified bool           `json:"verified"`
}

// String prints a receipt per direction, what was skipped, and totals.
func (r *TreeResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n%v\n", r.Read, r.Write)
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "skipped %s: %s\n", human.Name(s.Path), s.Why)
	}
	fmt.Fprintf(&b, "copied %s to %s files=%d bytes=%d links=%d time=%s rate=%s", r.Source, r.Dest, r.Files, r.Bytes, r.Links,
		human.Seconds(r.Seconds), human.Rate(float64(r.Bytes)/r.Seconds))
	if r.Done > 0 {
		fmt.Fprintf(&b, " done-before=%d", r.Done)
	}
	if r.Verified {
		b.WriteString(" verified")
	}
	return b.String()
}

const defaultJobs = 4

// A StoppedError means that a copy of a directory is incomplete. A rerun resumes.
type StoppedError struct {
	Files, Of int
	Err       error
}

func (e *StoppedError) Error() string {
	return fmt.Sprintf("%d of %d files are complete: %v", e.Files, e.Of, e.Err)
}

func (e *StoppedError) Unwrap() error { return e.Err }

// A treeCopy is a running copy.
type treeCopy struct {
	tree    *Tree
	drv     *cufile.Driver
	opts    TreeOptions
	journal *journal

	mu   sync.Mutex
	res  TreeResult
	errs []error
}

// Copy copies the files of the tree in parallel. A file that cannot be copied does
// not stop the others. The journal lists complete files, which a rerun skips; it is
// removed at the end.
func (t *Tree) Copy(ctx context.Context, drv *cufile.Driver, o TreeOptions) (*TreeResult, error) {
	if o.step == nil {
		o.step = func() {}
	}
	if o.Jobs <= 0 {
		o.Jobs = defaultJobs
	}
	c := &treeCopy{tree: t, drv: drv, opts: o}
	c.res = TreeResult{
		Source: t.Source, Dest: t.Dest, GPU: o.GPU, Skipped: t.Skipped,
		Read:  &route.Receipt{Dir: route.Read, Machine: drv.Machine()},
		Write: &route.Receipt{Dir: route.Write, Machine: drv.Machine()},
	}
	start := time.Now()
	err := c.run(ctx)
	c.res.Seconds = time.Since(start).Seconds()
	c.res.Verified = o.Verify && err == nil
	return &c.res, err
}

func (c *treeCopy) run(ctx context.Context) (err error) {
	// The destination comes first: the journal is in it.
	if len(c.tree.Dirs) > 0 && c.tree.Dirs[0].Path == "." {
		c.opts.step()
		if err := os.Mkdir(c.tree.Dest, c.tree.Dirs[0].Mode|0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	c.opts.step()
	c.journal, err = openJournal(c.tree.Dest, c.tree.source)
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
	if err := c.clean(); err != nil {
		return err
	}
	c.copyFiles(ctx)
	if ctx.Err() == nil {
		c.copyLinks()
	}
	if err := c.outcome(ctx); err != nil {
		return err
	}
	return c.finishDirs()
}

// makeDirs creates the directories, writable for the owner while files are copied.
func (c *treeCopy) makeDirs() error {
	for _, d := range c.tree.Dirs {
		c.opts.step()
		if err := c.journal.write(journalLine{Made: d.Path}); err != nil {
			return err
		}
		c.opts.step()
		path := filepath.Join(c.tree.Dest, d.Path)
		if err := os.Mkdir(path, d.Mode|0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// finishDirs sets the modes of the directories, the innermost first: a mode may
// exclude the owner.
func (c *treeCopy) finishDirs() error {
	for i := len(c.tree.finish) - 1; i >= 0; i-- {
		d := &c.tree.finish[i]
		path := filepath.Join(c.tree.Dest, d.Path)
		if err := atomicfile.SyncDir(path); err != nil {
			return err
		}
		if d.Path == "." {
			continue // it still has the journal
		}
		if err := os.Chmod(path, d.Mode); err != nil {
			return err
		}
	}
	return nil
}

// finishRoot does the same for the destination once the journal is removed.
func (c *treeCopy) finishRoot() error {
	if len(c.tree.finish) > 0 && c.tree.finish[0].Path == "." {
		if err := os.Chmod(c.tree.Dest, c.tree.finish[0].Mode); err != nil {
			return err
		}
	}
	return errors.Join(atomicfile.SyncDir(c.tree.Dest), atomicfile.SyncDir(filepath.Dir(filepath.Clean(c.tree.Dest))))
}

// clean removes temporary files of a killed copy, which have the journal's ID.
func (c *treeCopy) clean() error {
	dirs := map[string]bool{".": true}
	for i := range c.tree.Files {
		dirs[filepath.Dir(c.tree.Files[i].Path)] = true
	}
	mark := ".culvert-" + c.journal.id + "-"
	for d := range dirs {
		path := filepath.Join(c.tree.Dest, d)
		list, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range list {
			if strings.HasPrefix(e.Name(), mark) {
				if err := os.Remove(filepath.Join(path, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
	}
	return nil
}

func (c *treeCopy) copyFiles(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(c.opts.Jobs)
	for i := range c.tree.Files {
		f := &c.tree.Files[i]
		if f.Done {
			c.res.Done++
			continue
		}
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			c.copyFile(ctx, f)
			return nil
		})
	}
	_ = g.Wait() // errors are in c.errs
}

func (c *treeCopy) copyFile(ctx context.Context, f *TreeFile) {
	c.opts.step()
	o := c.opts.Options
	o.temp = c.journal.temp(f.Path)
	o.keepTime = true
	if w := c.opts.Watch; w != nil {
		w.Began(f)
		o.Advance = func(done, _ int64) { w.Advanced(f, done) }
	}
	res, err := Copy(ctx, c.drv, filepath.Join(c.tree.Source, f.Path), filepath.Join(c.tree.Dest, f.Path), o)
	c.opts.step()
	if err == nil {
		err = c.journal.add(f)
	}
	c.opts.step()
	if w := c.opts.Watch; w != nil {
		w.Ended(f, &res, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs = append(c.errs, about(f.Path, err))
		return
	}
	c.res.Files++
	c.res.Bytes += res.Bytes
	c.res.Read.Add(res.Read)
	c.res.Write.Add(res.Write)
}

// about adds the path to the error of a file, unless it has it.
func about(path string, err error) error {
	if strings.Contains(err.Error(), string(filepath.Separator)+path) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// copyLinks creates the symbolic links, each atomically.
func (c *treeCopy) copyLinks() {
	for _, l := range c.tree.Links {
		path := filepath.Join(c.tree.Dest, l.Path)
		temp := filepath.Join(filepath.Dir(path), c.journal.temp(l.Path))
		if err := atomicfile.Symlink(l.Target, path, temp, func(string) { c.opts.step() }); err != nil {
			c.errs = append(c.errs, about(l.Path, err))
			continue
		}
		c.res.Links++
	}
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
