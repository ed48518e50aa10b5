package transfer

import (
	"context"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// An objectDir is the directory to which objects are copied. New files get their names in
// groups, as those of a copy of a directory.
type objectDir struct {
	dirs   dirPairs
	groups *publisher
}

// intoDir copies the objects to files below the destination. Symbolic links below it
// are not followed.
func (c *objectTreeCopy) intoDir(ctx context.Context) error {
	if err := atomicfile.MkdirAll(c.tree.Dest, 0o777); err != nil {
		return err
	}
	dst, err := atomicfile.OpenDir(c.tree.Dest)
	if err != nil {
		return err
	}
	defer dst.Close()
	if err := c.makeDirs(dst); err != nil {
		return err
	}
	c.dir = &objectDir{dirs: dirPairs{dst: dst, open: map[string]*dirPair{}}, groups: newPublisher(groupLimit(descriptors()))}
	w := &groupWriter{dst: dst, opts: &c.opts, record: func([]*waiting) {}, ended: c.published}
	go c.dir.groups.run(func(group []*waiting) { w.publish(ctx, group) })
	// Objects are open until their files have names, which is later than the jobs end.
	return c.run(ctx, func(_ context.Context, next <-chan *ObjectFile) error { return c.download(ctx, next) })
}

// publishRest publishes the files that wait for more; a nil objectDir has none.
func (d *objectDir) publishRest() {
	if d != nil {
		d.groups.stop()
	}
}

// makeDirs makes the directories of the files, the outer ones first, and puts their names
// on stable storage. It removes what killed copies left there. Files of a directory that
// cannot be made fail by themselves when they are created.
func (c *objectTreeCopy) makeDirs(dst *atomicfile.Dir) error {
	list := []string{"."}
	seen, grown := map[string]bool{".": true}, map[string]bool{}
	var add func(rel string)
	add = func(rel string) {
		if seen[rel] {
			return
		}
		add(filepath.Dir(rel))
		seen[rel] = true
		err := dst.Mkdir(rel, 0o777)
		grown[filepath.Dir(rel)] = grown[filepath.Dir(rel)] || err == nil
		if st, serr := dst.Stat(rel); serr == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			list = append(list, rel)
		}
	}
	for i := range c.tree.Files {
		add(filepath.Dir(c.tree.Files[i].Path))
	}
	for _, rel := range list {
		if err := sweepDir(dst, rel, grown[rel]); err != nil {
			return err
		}
	}
	return nil
}

// sweepDir removes leftovers from a directory, and syncs it if it got an entry.
func sweepDir(dst *atomicfile.Dir, rel string, sync bool) error {
	dir, err := dst.Open(rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	dir.Sweep()
	if !sync {
		return nil
	}
	return dir.Sync()
}

// download is a job that copies objects to new files, and hands these over to be
// published.
func (c *objectTreeCopy) download(ctx context.Context, next <-chan *ObjectFile) error {
	buffer := &pumpBuffer{}
	defer buffer.close()
	for f := range next {
		if c.opts.Watch != nil {
			c.opts.Watch.Began(&f.TreeFile)
		}
		w, err := c.begin(ctx, f, buffer)
		if err == nil {
			err = c.fill(ctx, w)
		}
		if err != nil {
			c.ended(&f.TreeFile, nil, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// begin opens an object and creates its file.
func (c *objectTreeCopy) begin(ctx context.Context, f *ObjectFile, buffer *pumpBuffer) (*waiting, error) {
	src, err := c.open(ctx, f)
	if err != nil {
		return nil, err
	}
	pair, err := c.dir.dirs.take(filepath.Dir(f.Path))
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	o := c.opts.Options
	o.keepTime, o.buffer = true, buffer
	if c.opts.Watch != nil {
		o.Advance = func(done, _ int64) { c.opts.Watch.Advanced(&f.TreeFile, done) }
	}
	one := &fileCopy{drv: c.drv, object: src, dir: pair.dst, name: filepath.Base(f.Path), opts: o}
	one.source = &unix.Stat_t{Mode: 0o666, Size: src.Info().Size, Mtim: unix.NsecToTimespec(f.ModTime.UnixNano())}
	one.res = Result{Source: src.Name(), Dest: c.dir.dirs.dst.Path(f.Path), GPU: o.GPU}
	w := &waiting{fileCopy: one, file: &f.TreeFile, pair: pair}
	if err := w.create(); err != nil {
		return nil, errors.Join(err, c.release(w))
	}
	return w, nil
}

// fill copies the bytes of an object, and hands its file over.
func (c *objectTreeCopy) fill(ctx context.Context, w *waiting) error {
	err := pour(ctx, c.drv, w.object, w.source.Size, w.out.File.File, w.opts, &w.res)
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		err = w.end(err)
		_ = c.release(w) // a wrong checksum has failed the copy already
		return err
	}
	if c.opts.Watch != nil {
		c.opts.Watch.Filled(w.file)
	}
	c.dir.groups.files <- w
	return nil
}

// published ends a file that has its name, or could not get it.
func (c *objectTreeCopy) published(w *waiting) {
	if err := c.release(w); w.err == nil {
		w.err = err
	}
	c.ended(w.file, &w.res, w.err)
}

// release ends the use of an object and of the directory of its file.
func (c *objectTreeCopy) release(w *waiting) error {
	c.dir.dirs.release(w.pair)
	return w.object.Close()
}

// ended reports and counts a file.
func (c *objectTreeCopy) ended(f *TreeFile, res *Result, err error) {
	if err != nil {
		err = about(f.Path, err)
	}
	if c.opts.Watch != nil {
		c.opts.Watch.Ended(f, res, err)
	}
	c.count(res, err)
}
